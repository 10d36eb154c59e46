"""A worker's clock is compared with the broker's at the start of a session and later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
import structlog
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    KafkaError,
    KafkaException,
)

from proxy.clock import Clock
from proxy.errors import BrokerRefused
from proxy.kafka.broker_clock import BrokerClock
from proxy.session.clock_watch import ASK_EVERY_S, ASK_SOON_S, ClockWatch
from tests.support.simulation.manual_clock import START_MS, ManualTime

TOPIC = "timer.settings"
HOUR_MS = 3_600_000


class Producer:
    """Producer whose broker stamps records with its time, or not, and answers at a poll."""

    def __init__(self, time: ManualTime) -> None:
        self.time = time
        self.stamp_kind = TIMESTAMP_LOG_APPEND_TIME
        self.error: KafkaError | None = None
        self.answers_in_ms = 0
        self.is_full = False
        self.written: list[tuple[str, bytes | None, str]] = []
        self._reports: list[Callable[[KafkaError | None, object], None]] = []

    def produce(self, topic: str, value: bytes | None, key: str, on_delivery: Any) -> None:
        if self.is_full:
            raise BufferError
        self.written.append((topic, value, key))
        self._reports.append(on_delivery)

    def poll(self, timeout: float) -> int:
        stamp = self.stamp_kind, self.time.broker_now_ms
        self.time.pass_ms(self.answers_in_ms)
        for report in self._reports:
            report(self.error, type("Message", (), {"timestamp": lambda _: stamp})())
        self._reports.clear()
        return 0


class Watched:
    """A clock, its watch, and the broker it asks."""

    def __init__(self) -> None:
        self.time = ManualTime()
        self.producer = Producer(self.time)
        self.clock: Clock = self.time.clock()
        self.broker = BrokerClock(
            lambda: cast(Any, self.producer), TOPIC, "delays", lambda: self.time.monotonic_now_ms
        )
        self.watch = ClockWatch(self.broker, self.clock, TOPIC, lambda: None, self._now_s)

    def pass_s(self, elapsed_s: float) -> int:
        before = len(self.producer.written)
        self.time.pass_ms(int(elapsed_s * 1000))
        self.watch.look()
        self.watch.look()
        return len(self.producer.written) - before

    def _now_s(self) -> float:
        return self.time.monotonic_now_ms / 1000


def test_broker_is_asked_by_a_record_that_leaves_nothing_behind() -> None:
    watched = Watched()
    watched.watch.begin()
    assert watched.producer.written == [(TOPIC, None, "clock/delays")]


def test_broker_is_asked_again_after_a_record_that_the_library_did_not_take() -> None:
    watched = Watched()
    watched.producer.is_full = True
    with pytest.raises(BufferError):
        watched.broker.ask()
    watched.producer.is_full = False
    watched.broker.ask()
    assert len(watched.producer.written) == 1


def test_clock_that_is_ahead_goes_by_the_broker_s_from_the_first_moment() -> None:
    watched = Watched()
    watched.time.step_ms(HOUR_MS)
    with structlog.testing.capture_logs() as logs:
        watched.watch.begin()
    assert watched.clock.now_ms() == START_MS
    assert [(line["log_level"], line["lead_ms"]) for line in logs] == [("error", HOUR_MS)]


def test_an_answer_that_took_long_counts_from_when_it_came() -> None:
    watched = Watched()
    watched.producer.answers_in_ms = 400
    watched.watch.begin()
    assert watched.clock.broker_ms == START_MS
    assert watched.clock.lead_ms == 400


def test_broker_is_asked_now_and_then_and_soon_again_while_clocks_disagree() -> None:
    watched = Watched()
    watched.watch.begin()
    assert watched.pass_s(ASK_EVERY_S - 1) == 0
    assert watched.pass_s(1) == 1
    watched.time.step_ms(HOUR_MS)
    assert watched.pass_s(ASK_SOON_S) == 1
    assert watched.pass_s(ASK_SOON_S - 1) == 0
    assert watched.pass_s(1) == 1


def test_clock_that_is_mended_is_believed_and_said_to_agree() -> None:
    watched = Watched()
    watched.watch.begin()
    watched.time.sleep_ms(HOUR_MS)
    with structlog.testing.capture_logs() as logs:
        watched.pass_s(ASK_SOON_S)
        watched.pass_s(ASK_SOON_S)
    assert [line["event"].split()[1] for line in logs] == ["ahead", "agrees"]
    assert watched.clock.now_ms() == watched.time.broker_now_ms


def test_clock_that_is_behind_is_said_and_stays_late() -> None:
    watched = Watched()
    watched.time.step_ms(-HOUR_MS)
    with structlog.testing.capture_logs() as logs:
        watched.watch.begin()
    assert [line["lead_ms"] for line in logs] == [-HOUR_MS]
    assert watched.clock.now_ms() == START_MS - HOUR_MS


def test_a_topic_that_the_broker_does_not_stamp_is_named_with_the_remedy() -> None:
    watched = Watched()
    watched.producer.stamp_kind = TIMESTAMP_CREATE_TIME
    with structlog.testing.capture_logs() as logs:
        watched.watch.begin()
    assert [line["remedy"].split()[0] for line in logs] == ["kafka-configs.sh"]
    assert watched.clock.lead_ms is None


def test_session_does_not_begin_without_the_broker_s_time() -> None:
    watched = Watched()
    watched.producer.error = KafkaError(KafkaError._MSG_TIMED_OUT)
    with pytest.raises(KafkaException):
        watched.watch.begin()
    watched.producer.error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(BrokerRefused, match="may not write to timer.settings"):
        watched.watch.begin()


def test_broker_that_does_not_answer_meanwhile_is_asked_again_and_its_last_time_goes_on() -> None:
    watched = Watched()
    watched.time.step_ms(HOUR_MS)
    watched.watch.begin()
    watched.producer.error = KafkaError(KafkaError._MSG_TIMED_OUT)
    assert watched.pass_s(ASK_SOON_S) == 1
    assert watched.pass_s(ASK_SOON_S) == 1
    assert watched.clock.now_ms() == watched.time.broker_now_ms
