"""Distance from the floor to the broker's deletion, queried without waiting."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, TopicPartition

from proxy.kafka.log_ranges import LOOK_EVERY_S, Retained, RetentionWatch

TOPIC = "timer.ingress"
NOW_MS = 1_000_000
EARLIEST, LATEST = -2, -1
"""Kafka's own codes."""


class Log:
    """Fake admin client: partitions with a start, and records by their age."""

    def __init__(self, start: int, written_ms: list[int]) -> None:
        self.start, self.written_ms = start, written_ms
        self.is_reachable, self.answers, self.is_led = True, True, True
        self.asked = 0

    def list_offsets(
        self, places: dict[TopicPartition, Any], **_: object
    ) -> dict[TopicPartition, Future[Any]]:
        self.asked += 1
        return {place: self._answer(spec) for place, spec in places.items()}

    def _answer(self, spec: Any) -> Future[Any]:
        answer: Future[Any] = Future()
        if not self.is_reachable:
            answer.set_exception(KafkaException(KafkaError(KafkaError._TRANSPORT)))
        elif self.answers:
            answer.set_result(SimpleNamespace(offset=self._offset(spec._value)))
        return answer

    def _offset(self, since_ms: int) -> int:
        if not self.is_led:
            return OFFSET_INVALID
        if since_ms == EARLIEST:
            return self.start
        if since_ms == LATEST:
            return self.start + len(self.written_ms)
        young = [self.start + n for n, at_ms in enumerate(self.written_ms) if at_ms >= since_ms]
        return young[0] if young else -1


class Watch:
    """A watch over partition 0 with its own clock."""

    def __init__(self, log: Log, aging_after_ms: int | None = 600) -> None:
        self._now_s = 0.0
        admin = cast(Any, log)
        self.watch = RetentionWatch(
            admin, TOPIC, aging_after_ms, lambda: NOW_MS, lambda: self._now_s
        )

    def look(self, *partitions: int) -> Retained | None:
        self._now_s += LOOK_EVERY_S
        self.watch.look(partitions)
        self.watch.look(partitions)
        return self.watch.retained(0)


def a_log() -> Log:
    return Log(10, [NOW_MS - 900, NOW_MS - 700, NOW_MS - 500, NOW_MS - 300])


def test_offsets_from_the_floor_to_the_first_young_one_are_aging() -> None:
    kept = Watch(a_log()).look(0)
    assert kept == Retained(10, 12, 14)
    assert kept is not None
    assert [kept.aging(floor) for floor in (10, 11, 12, 14)] == [2, 1, 0, 0]


def test_where_no_record_is_young_all_is_aging_what_is_not_read_yet_too() -> None:
    kept = Watch(a_log(), aging_after_ms=100).look(0)
    assert kept == Retained(10, None, 14)
    assert kept is not None
    assert kept.aging(11) == 3


def test_nothing_ages_where_the_ingress_keeps_records_for_ever() -> None:
    kept = Watch(a_log(), aging_after_ms=None).look(0)
    assert kept is not None
    assert kept.aging(0) == 0


def test_broker_that_does_not_answer_is_neither_waited_for_nor_asked_again() -> None:
    log = a_log()
    log.answers = False
    watch = Watch(log)
    assert watch.look(0) is None
    assert watch.look(0) is None
    assert log.asked == 3


@pytest.mark.parametrize("lacking", ["is_reachable", "is_led"])
def test_without_an_answer_the_last_one_stands_until_the_next(lacking: str) -> None:
    """Without a leader the client's answer has no offsets."""
    log = a_log()
    watch = Watch(log)
    watch.look(0)
    setattr(log, lacking, False)
    log.start = 12
    assert watch.look(0) == Retained(10, 12, 14)
    setattr(log, lacking, True)
    assert watch.look(0) == Retained(12, 14, 16)


def test_partition_that_has_moved_away_is_forgotten() -> None:
    watch = Watch(a_log())
    watch.look(0)
    assert watch.look() is None
