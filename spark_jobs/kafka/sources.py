"""Topics as DataFrames: committed records of explicit offset ranges, nothing skipped in silence."""

import json
from collections.abc import Iterable
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.kafka.kafka_settings import KafkaSettings
from spark_jobs.kafka.positions import Range
from spark_jobs.runtime.frames import Schema, conformed, local_rows

RECORDS: Final[Schema] = {
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp_ms": "bigint",
    "key": "binary",
    "value": "binary",
    "headers": "array<struct<key:string,value:binary>>",
    "is_attested": "boolean",
}
"""What a topic holds. timestamp_ms: -1 where there is none; headers are never null. is_attested:
the timestamp is the broker's own (LogAppendTime), else it is what the producer claims."""

COMMITTED: Final = {
    "kafka.isolation.level": "read_committed",
    "kafka.fetch.max.wait.ms": "20",
    "kafka.max.poll.records": "10000",
}
"""A transaction ends with a control record: who reads up to there asks for one record more than
there is, and by default the broker lets him wait for half a second. Spark asks the broker twice how
far the log goes for each poll, which gives 500 records by default."""


def records(spark: SparkSession, settings: KafkaSettings, ranges: Iterable[Range]) -> DataFrame:
    """What these ranges hold, as RECORDS.

    Records of aborted transactions are left out. A range that the log no longer has whole when it
    is read (retention) fails the job instead of giving less: `failures.explained` says so.
    """
    asked = [one for one in ranges if one.start < one.end]
    if not asked:
        return local_rows(spark, [], RECORDS)
    reader = spark.read.format("kafka").options(**_options(asked))
    for name, value in settings.java.items():
        reader = reader.option(f"kafka.{name}", value)
    reader = reader.option("minPartitions", spark.sparkContext.defaultParallelism)
    columns = {
        "timestamp_ms": "unix_millis(timestamp)",
        "is_attested": "timestampType = 1",
        "headers": f"coalesce(headers, CAST(array() AS {RECORDS['headers']}))",
    }
    return conformed(reader.load(), RECORDS, columns)


def _options(ranges: list[Range]) -> dict[str, str]:
    return {
        "assign": _partitions(ranges),
        "startingOffsets": _offsets([(one, one.start) for one in ranges]),
        "endingOffsets": _offsets([(one, one.end) for one in ranges]),
        "includeHeaders": "true",
        "failOnDataLoss": "true",
        **COMMITTED,
    }


def _partitions(ranges: list[Range]) -> str:
    topics: dict[str, list[int]] = {}
    for one in ranges:
        topics.setdefault(one.topic, []).append(one.partition)
    return json.dumps(topics)


def _offsets(rows: list[tuple[Range, int]]) -> str:
    topics: dict[str, dict[str, int]] = {}
    for one, offset in rows:
        topics.setdefault(one.topic, {})[str(one.partition)] = offset
    return json.dumps(topics)
