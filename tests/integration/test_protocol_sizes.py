"""Targets with low size limits: each record is judged by its own size, to the byte."""

from __future__ import annotations

import os
import time

import pytest

from proxy.dispatch.known_targets import record_batch_bytes
from tests.support.installation.installation import Installation
from tests.support.records import Headers, Incoming, Outgoing

pytestmark = pytest.mark.integration

SMALL_BYTES = 2_000
REFUSED = 150
GOOD = 20


def _to(topic: str, key: bytes | None, size_bytes: int) -> Outgoing:
    return Outgoing(key, bytes(size_bytes), [("timer-topic", topic.encode())])


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_small_records_pass_where_large_batches_do_not(
    installation: Installation, compression: str
) -> None:
    tight = installation.target(
        "tight", partitions=2, config={"max.message.bytes": str(SMALL_BYTES)}
    )
    orders = installation.target()
    records = [_to(tight, b"k%d" % number, 150 + number % 50) for number in range(400)]
    records[100:100] = [_to(tight, b"large", 3 * SMALL_BYTES)]
    records[200:200] = [_to(orders, b"k", 100_000)]
    if compression == "none":
        records[300:300] = [_to(tight, None, 5 * SMALL_BYTES)] * 20
    installation.send(records)
    kafka = installation.kafka(**{"compression.type": compression})

    installation.proxy(kafka=kafka).start_ready()

    refused = 21 if compression == "none" else 0
    ends = installation.judge()
    assert ends.counts["dead-lettered"] == refused
    assert ends.counts["delivered"] == len(records) - refused


def test_record_of_exactly_the_limit_passes_and_one_byte_more_does_not(
    installation: Installation,
) -> None:
    tight = installation.target("tight", config={"max.message.bytes": str(SMALL_BYTES)})
    origin = f"{installation.ingress}/0/7"
    stamps: Headers = [("timer-origin", origin.encode()), ("timer-due", b"1" * 13)]
    room_bytes = SMALL_BYTES - record_batch_bytes(b"k", b"", stamps)
    sizes = range(room_bytes - 4, room_bytes + 3)
    to_first = [_to(tight, b"k", size) for size in sizes for _ in range(3)]
    installation.send([Outgoing(r.key, r.value, r.headers, partition=0) for r in to_first])

    installation.proxy().start_ready()

    ends = installation.judge()
    assert {r.header("timer-error") for found in ends.dead_letters.values() for r in found} == {
        b"too-large"
    }
    delivered = [p.record for found in ends.deliveries.values() for p in found]
    assert all(record_batch_bytes(r.key, r.value, r.headers) <= SMALL_BYTES for r in delivered)
    letters = [letter for found in ends.dead_letters.values() for letter in found]
    assert all(_as_delivered_bytes(letter) > SMALL_BYTES for letter in letters)


def _as_delivered_bytes(letter: Incoming) -> int:
    stamps: Headers = [("timer-origin", letter.header("timer-origin")), ("timer-due", b"1" * 13)]
    return record_batch_bytes(letter.key, letter.value, stamps)


def test_dead_letters_go_without_their_value_where_that_does_not_fit(
    installation: Installation,
) -> None:
    installation.create_dead_letters({"max.message.bytes": str(SMALL_BYTES)})
    sizes = [10] * 50 + [3 * SMALL_BYTES] * 3 + [10] * 50
    installation.send([_to("nobody-made-this-topic", b"k", size) for size in sizes])

    installation.proxy(retry={"max_attempts": 1}).start_ready()

    ends = installation.judge()
    values = [letter.value for found in ends.dead_letters.values() for letter in found]
    assert (values.count(None), values.count(bytes(10))) == (3, 100)


def test_records_that_only_the_broker_can_measure_delay_no_others(
    installation: Installation,
) -> None:
    """Only the broker knows their compressed size, and each refusal costs a transaction."""
    small = installation.target("small", config={"max.message.bytes": "1500"})
    good = installation.target("good")
    patient = {"compression.type": "lz4", "session.timeout.ms": "45000"}
    compressing = installation.kafka(**patient)
    installation.proxy(kafka=compressing).start_ready()
    due_ms = int(time.time() * 1_000) + 3_000

    def asking(topic: str, value: bytes) -> Outgoing:
        asked = [("timer-topic", topic.encode()), ("timer-deliver-at", b"%d" % due_ms)]
        return Outgoing(b"k", value, asked)

    records = [asking(small, os.urandom(2_000)) for _ in range(REFUSED)]
    records += [asking(small, bytes(2_000)) for _ in range(GOOD)]
    records += [asking(good, b"v") for _ in range(GOOD)]
    installation.send(records)
    ends = installation.judge()
    assert ends.counts["delivered"] == 2 * GOOD
    assert ends.counts["dead-lettered"] == REFUSED
    letters = [letter for found in ends.dead_letters.values() for letter in found]
    ended_ms = sorted(letter.timestamp_ms for letter in letters)
    placed = [one for found in ends.deliveries.values() for one in found]
    last_good_ms = max(one.record.timestamp_ms for one in placed if one.topic == good)
    assert last_good_ms < ended_ms[REFUSED // 2]
    assert "session lost" not in installation.proxy().log
