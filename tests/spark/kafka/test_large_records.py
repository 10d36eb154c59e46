"""Records that are too large for Spark: the driver reads them, and Spark gets hashes."""

from __future__ import annotations

from hashlib import sha256

import pytest
from confluent_kafka import Producer
from pyspark.sql import Row, SparkSession

from spark_jobs.kafka import sources as large_records
from spark_jobs.kafka.broker import Broker, kafka_settings
from spark_jobs.kafka.snapshot import Range, Unreadable
from spark_jobs.kafka.sources import LargeRecords, records
from spark_jobs.runtime.errors import RangeRefused
from tests.support.records import new_topic

pytestmark = pytest.mark.integration

WITHIN_S = 120
LARGE, SMALL = b"l" * 2_000, b"s"


@pytest.fixture(autouse=True)
def _large_from_here_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_records, "LARGE_BYTES", 1_000)
    monkeypatch.setattr(large_records, "PART_BYTES", 500)


def write_batch(bootstrap: str, topic: str, parts: list[tuple[bytes, bytes, bytes]]) -> None:
    client = {"bootstrap.servers": bootstrap, "compression.type": "gzip", "linger.ms": 60_000}
    producer = Producer(client)
    for key, value, header in parts:
        producer.produce(topic, value, key, partition=0, headers=[("h", header), ("n", None)])
    assert producer.flush(WITHIN_S) == 0


def searched(bootstrap: str, ranges: list[Range], hides: tuple[str, ...] = ()) -> LargeRecords:
    known = LargeRecords()
    known.note_read(ranges)
    known.search(Broker(kafka_settings(bootstrap)), hides)
    return known


def test_spark_gets_hashes_of_the_large_parts_and_all_other_records_as_they_are(
    spark: SparkSession, kafka: str
) -> None:
    topic = new_topic(kafka, "large")
    small = (SMALL, SMALL, SMALL)
    write_batch(
        kafka,
        topic,
        [small, (SMALL, LARGE, SMALL), small, (SMALL, SMALL, LARGE), small, (LARGE, b"", b"")],
    )
    write_batch(kafka, topic, [small, (SMALL, LARGE, LARGE)])
    whole, settings = [Range(topic, 0, 0, 8)], kafka_settings(kafka)
    known = searched(kafka, whole, (topic,))
    assert known.offsets(whole[0]) == [1, 3, 5, 7]

    def read(ranges: list[Range], large: LargeRecords | None = None) -> list[Row]:
        rows = records(spark, settings, ranges, Unreadable({0: [(2, 3)]}), large).collect()
        return sorted(rows, key=lambda row: row.offset)

    def hidden(row: Row) -> Row:
        def shown(part: bytes | None) -> bytes | None:
            return sha256(part).digest() if part and len(part) == len(LARGE) else part

        fields = row.asDict()
        fields |= {"key": shown(row.key), "value": shown(row["value"])}
        if row.headers is not None:
            fields["headers"] = [Row(key=one.key, value=shown(one.value)) for one in row.headers]
        is_large = row.offset in (1, 3, 5, 7)
        fields["large_bytes"] = len(row.key) + len(row["value"]) if is_large else None
        return Row(**fields)

    assert read(whole, known) == [*map(hidden, read(whole))]
    part = [Range(topic, 0, 2, 5)]
    assert read(part, known) == [*map(hidden, read(part))]


def test_a_large_key_stays_where_it_says_which_partition_is_right(kafka: str) -> None:
    topic = new_topic(kafka, "keyed")
    write_batch(kafka, topic, [(LARGE, SMALL, SMALL), (SMALL, LARGE, SMALL)])
    whole = Range(topic, 0, 0, 2)
    assert searched(kafka, [whole]).offsets(whole) == [1]
    assert searched(kafka, [whole], (topic,)).offsets(whole) == [0, 1]


def test_a_search_says_whether_it_found_one_that_was_not_known(kafka: str) -> None:
    topic, broker = new_topic(kafka, "again"), Broker(kafka_settings(kafka))
    write_batch(kafka, topic, [(SMALL, SMALL, SMALL), (SMALL, LARGE, SMALL)])
    known = LargeRecords()
    known.note_read([Range(topic, 0, 0, 1)])
    assert not known.search(broker, ())
    known.note_read([Range(topic, 0, 0, 2)])
    assert known.search(broker, ())
    known.note_read([Range(topic, 0, 0, 1)])
    assert not known.search(broker, ())


def test_beyond_a_bound_the_audit_is_not_made(kafka: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_records, "MOST_LARGE", 2)
    topic = new_topic(kafka, "many")
    write_batch(kafka, topic, [(SMALL, LARGE, SMALL)] * 3)
    with pytest.raises(RangeRefused, match=rf"More than 2 records .* first is {topic}/0/0.*--off"):
        searched(kafka, [Range(topic, 0, 0, 3)])
