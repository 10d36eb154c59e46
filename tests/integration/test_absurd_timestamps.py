"""Records with impossible timestamps end alone, and stop no records behind them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.support.installation.installation import Installation
from tests.support.quiet_clients import QUIET
from tests.support.records import Headers, read_to_end

pytestmark = pytest.mark.integration

FLUSH_TIMEOUT_S = 60
ANY_TIME = {
    "message.timestamp.type": "CreateTime",
    "message.timestamp.after.max.ms": str(2**63 - 1),
    "message.timestamp.before.max.ms": str(2**63 - 1),
    "retention.ms": "-1",
}
ABSURD_MS = (10**15, 2**62, 2**63 - 1)
NO_TIME_MS = -1


@pytest.fixture
def installation(kafka: str, tmp_path: Path) -> Iterator[Installation]:
    made = Installation(kafka, tmp_path, partitions=1, ingress_config=ANY_TIME)
    yield made
    made.close()


def test_records_from_beyond_all_time_are_dead_letters_and_the_others_arrive(
    installation: Installation,
) -> None:
    topic = installation.target()
    topics = {**installation.settings("one")["topics"], "allow_create_time": True}
    proxy = installation.proxy(topics=topics)
    producer = Producer({"bootstrap.servers": installation.bootstrap, **QUIET})
    for number, timestamp_ms in enumerate(ABSURD_MS):
        for asked in ([], [("timer-delay", b"1s")], [("timer-deliver-at", b"5")]):
            headers: Headers = [("timer-topic", topic.encode()), *asked]
            producer.produce(
                installation.ingress, b"absurd", headers=list(headers), timestamp=timestamp_ms
            )
        producer.produce(
            installation.ingress, b"%d" % number, headers=[("timer-topic", topic.encode())]
        )
    assert producer.flush(FLUSH_TIMEOUT_S) == 0
    proxy.start_ready()
    ends = installation.judge()
    assert ends.counts == {"dead-lettered": 3 * len(ABSURD_MS), "delivered": len(ABSURD_MS)}
    letters = [letter for found in ends.dead_letters.values() for letter in found]
    assert {letter.header("timer-error") for letter in letters} == {b"time-unreadable"}
    assert {letter.value for letter in letters} == {b"absurd"}


def test_records_without_a_time_of_their_own_can_ask_for_times_but_not_for_delays(
    installation: Installation,
) -> None:
    topic = installation.target().encode()
    topics = {**installation.settings("one")["topics"], "allow_create_time": True}
    proxy = installation.proxy(topics=topics)
    producer = Producer({"bootstrap.servers": installation.bootstrap, **QUIET})
    asks: dict[bytes, Headers] = {
        b"at once": [("timer-topic", topic)],
        b"at a time": [("timer-topic", topic), ("timer-deliver-at", b"5")],
        b"delay": [("timer-topic", topic), ("timer-delay", b"1s")],
        b"level": [("timer-topic", topic), ("timer-level", b"1")],
        b"retry": [("timer-topic", topic), ("timer-retry-group", b"g"), ("timer-attempt", b"0")],
    }
    for value, headers in asks.items():
        producer.produce(installation.ingress, value, headers=list(headers), timestamp=NO_TIME_MS)
    assert producer.flush(FLUSH_TIMEOUT_S) == 0
    found = read_to_end(installation.bootstrap, installation.ingress)
    assert [record.timestamp_ms for record in found] == [NO_TIME_MS] * len(asks)
    proxy.start_ready()
    ends = installation.judge()
    letters = [letter for found in ends.dead_letters.values() for letter in found]
    assert {letter.value for letter in letters} == {b"delay", b"level", b"retry"}
    assert {letter.header("timer-error") for letter in letters} == {b"time-unreadable"}
    assert ends.counts == {"dead-lettered": 3, "delivered": 2}
