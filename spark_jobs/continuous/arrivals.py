"""The stream: whatever arrives in targets, dead letters and outcomes, and a clock.

A stream without news makes no batch. But that nothing arrives may be just what is wrong: so there
is a row from a clock each second, which is no record.
"""

from collections.abc import Iterable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from spark_jobs.kafka.kafka_settings import KafkaSettings
from spark_jobs.kafka.snapshot import OwnTopics
from spark_jobs.kafka.sources import COMMITTED, RECORDS, as_records
from spark_jobs.records.topic_names import INTERNAL_PREFIX, java_regex


def arrivals(spark: SparkSession, settings: KafkaSettings, subscribed: str) -> DataFrame:
    """A streaming frame of RECORDS from the topics that a Java regular expression names.

    Committed records from the first on; topic is null in the clock's rows. What retention deletes
    unread ends the query.
    """
    reader = spark.readStream.format("kafka").options(
        **{
            "subscribePattern": subscribed,
            "startingOffsets": "earliest",
            "includeHeaders": "true",
            "failOnDataLoss": "true",
            **COMMITTED,
        }
    )
    for name, value in settings.java.items():
        reader = reader.option(f"kafka.{name}", value)
    return as_records(reader.load()).unionByName(_clock(spark))


def subscription(own: OwnTopics, targets: Iterable[str], audit_topic: str | None) -> str:
    """The Java regular expression of dead letters, outcomes and all that `targets` (names or shell
    patterns) match; never the ingress, the settings, the audit's own topic or Kafka's."""
    apart = java_regex([own.ingress, own.settings, *([audit_topic] if audit_topic else [])])
    return (
        f"(?!{apart})(?!{INTERNAL_PREFIX}){java_regex([own.dead_letters, own.outcomes, *targets])}"
    )


def _clock(spark: SparkSession) -> DataFrame:
    ticks = spark.readStream.format("rate").option("rowsPerSecond", 1).load()
    return ticks.select([f.lit(None).cast(kind).alias(name) for name, kind in RECORDS.items()])
