"""Topics as DataFrames: committed records, byte for byte, of exactly the requested range."""

import pytest
from confluent_kafka import TopicPartition
from pyspark.sql import SparkSession

from spark_jobs.kafka.broker import kafka_settings
from spark_jobs.kafka.snapshot import Range
from spark_jobs.kafka.sources import RECORDS, records
from spark_jobs.runtime.errors import RangeRefused, explained
from tests.support.installation.committing import open_transaction
from tests.support.quiet_clients import admin_client
from tests.support.records import Outgoing, await_ends, new_topic, read_to_end, write

pytestmark = pytest.mark.integration


def test_records_are_read_byte_for_byte_without_aborted_ones(
    spark: SparkSession, kafka: str
) -> None:
    one, two = new_topic(kafka, "one", 2), new_topic(kafka, "two")
    headers = [("a", b"\xff\x00"), ("a", None), ("b", b"")]
    write(kafka, one, [Outgoing(b"\x00k", b"\xfe", headers, 1), Outgoing(None, None, (), 0)])
    aborted = open_transaction(kafka)
    aborted.produce(two, b"never")
    aborted.flush()
    aborted.abort_transaction()
    await_ends(kafka, two, {0: 2})
    write(kafka, two, [Outgoing(value=b"kept"), Outgoing(value=b"beyond")])

    ranges = [Range(one, 0, 0, 1), Range(one, 1, 0, 1), Range(two, 0, 0, 3)]
    found = records(spark, kafka_settings(kafka), ranges)
    collected = found.collect()
    rows = {(row.topic, row.partition): row for row in collected}

    assert [field.name for field in found.schema] == list(RECORDS)
    assert len(collected) == 3
    first = rows[one, 1]
    assert (bytes(first.key), bytes(first["value"])) == (b"\x00k", b"\xfe")
    assert [(key, value) for key, value in first.headers] == headers
    (written,) = [found for found in read_to_end(kafka, one, 2) if found.partition == 1]
    assert first.timestamp_ms == written.timestamp_ms
    assert (rows[one, 0].key, rows[one, 0]["value"], rows[one, 0].headers) == (None, None, [])
    assert (rows[two, 0].offset, bytes(rows[two, 0]["value"])) == (2, b"kept")


def test_ranges_that_hold_nothing_give_an_empty_frame(spark: SparkSession, kafka: str) -> None:
    found = records(spark, kafka_settings(kafka), [Range("any", 0, 5, 5)])
    assert {field.name: field.dataType.simpleString() for field in found.schema} == RECORDS
    assert found.isEmpty()


def test_records_that_retention_has_deleted_meanwhile_fail_the_job(
    spark: SparkSession, kafka: str
) -> None:
    topic = new_topic(kafka, "short")
    write(kafka, topic, [Outgoing(), Outgoing(), Outgoing()])
    found = records(spark, kafka_settings(kafka), [Range(topic, 0, 0, 3)])
    admin = admin_client(kafka)
    for wait in admin.delete_records([TopicPartition(topic, 0, 2)]).values():
        wait.result(180)

    with pytest.raises(RangeRefused, match="Run the audit again"), explained():
        found.count()
