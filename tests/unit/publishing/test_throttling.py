"""A throttling broker limits the next transactions, with manual time."""

from __future__ import annotations

import pytest
from confluent_kafka import ThrottleEvent
from structlog.testing import capture_logs

from proxy.publishing.throttling import (
    LEAST_BYTES,
    LOG_EVERY_S,
    LONG_S,
    RECENT_S,
    SETTLED_AFTER_S,
    SLOW_S,
    TELLING_BYTES,
    UNBOUNDED,
    Throttling,
)

T = 200_000
"""Quota in bytes per second."""


class Throttled:
    """A worker and its broker, with manual time."""

    def __init__(self) -> None:
        self.now_s = 5_000.0
        self.told: list[tuple[str, float]] = []
        self.throttling = Throttling(lambda *one: self.told.append(one), lambda: self.now_s)

    def hear(self, seconds: float, *, is_read: bool = False) -> None:
        event = ThrottleEvent("broker", 1, seconds)
        (self.throttling.read if is_read else self.throttling.written)(event)

    def transaction(self, size_bytes: int, took_s: float, throttled_s: float = 0) -> None:
        """Commit a transaction after `took_s`. Its last answer has `throttled_s`."""
        began_s = self.now_s
        self.now_s += took_s
        self.hear(throttled_s)
        self.throttling.committed(size_bytes, began_s, took_s)


@pytest.fixture
def worker() -> Throttled:
    return Throttled()


def test_without_a_word_from_the_broker_nothing_is_bounded_nor_waited_for(
    worker: Throttled,
) -> None:
    worker.transaction(10_000_000, 9.0)
    throttling = worker.throttling
    assert throttling.most_bytes == UNBOUNDED
    assert (throttling.wait_ms(), throttling.is_recent, worker.told) == (0, False, [])


def test_what_is_written_waits_for_as_long_as_the_broker_has_said(worker: Throttled) -> None:
    worker.hear(2.5)
    worker.hear(1.0)
    worker.hear(0)
    waits = []
    for _ in range(4):
        waits.append(worker.throttling.wait_ms())
        worker.now_s += 1
    assert waits == [2_500, 1_500, 500, 0]


def test_a_throttled_reader_is_told_and_nothing_waits_for_it(worker: Throttled) -> None:
    worker.hear(2.5, is_read=True)
    assert worker.throttling.is_reading_recent
    assert worker.throttling.wait_ms() == 0
    assert worker.told == [("reading", 2.5)]


def test_mild_throttling_bounds_a_transaction_to_what_passes_in_a_few_seconds(
    worker: Throttled,
) -> None:
    worker.transaction(T // 2, 0.1, throttled_s=0.4)
    bound = worker.throttling.most_bytes
    assert bound == pytest.approx(T * LONG_S, rel=0.01)


def test_one_given_up_makes_the_next_far_smaller_and_none_smaller_than_the_least(
    worker: Throttled,
) -> None:
    worker.hear(30)
    bounds = []
    for _ in range(6):
        worker.throttling.given_up(10_000_000)
        bounds.append(worker.throttling.most_bytes)
    assert bounds == [1_250_000, 156_250, 19_531, 2_441, LEAST_BYTES, LEAST_BYTES]


def test_full_transactions_grow_until_they_take_long_under_a_steady_quota(
    worker: Throttled,
) -> None:
    """Two of three record batches are throttled within the transaction, the last one after it."""
    throttling = worker.throttling
    worker.hear(10)
    throttling.given_up(10_000_000)
    throttling.given_up(10_000_000)
    worker.now_s += SETTLED_AFTER_S
    for _ in range(50):
        worker.now_s += throttling.wait_ms() / 1_000
        passes_s = throttling.most_bytes / T
        worker.transaction(throttling.most_bytes, passes_s * 2 / 3, throttled_s=passes_s / 3)
        assert passes_s < 2 * LONG_S, "with a timeout of 10 s it would be given up"
    assert passes_s > LONG_S / 2


def test_a_bound_is_forgotten_soon_once_the_quota_is_gone(worker: Throttled) -> None:
    worker.transaction(T, 0.5, throttled_s=1)
    worker.now_s += 1
    transactions = 0
    while worker.throttling.most_bytes < 20_000_000:
        worker.transaction(worker.throttling.most_bytes, 0.2)
        transactions += 1
    assert transactions < 20


def test_one_that_takes_nearly_too_long_makes_the_next_smaller(worker: Throttled) -> None:
    worker.transaction(400_000, SLOW_S + 1, throttled_s=1)
    assert worker.throttling.most_bytes == 200_000


@pytest.mark.parametrize("took_s", [0.1, SLOW_S + 1])
def test_a_small_one_that_waits_for_long_does_not_make_large_ones_small(
    worker: Throttled, took_s: float
) -> None:
    for _ in range(20):
        worker.transaction(1_000, took_s, throttled_s=4)
    assert worker.throttling.most_bytes == TELLING_BYTES


def test_no_bound_grows_while_the_broker_counts_what_was_given_up(worker: Throttled) -> None:
    worker.hear(1)
    worker.throttling.given_up(8_000_000)
    bounds = []
    for _ in range(3):
        worker.now_s += SETTLED_AFTER_S / 2
        worker.transaction(1_000_000, 0.1)
        bounds.append(worker.throttling.most_bytes)
    assert bounds == [1_000_000, 1_250_000, 1_562_500]


def test_small_transactions_say_nothing_about_large_ones(worker: Throttled) -> None:
    worker.transaction(T, 0.5, throttled_s=1)
    bound = worker.throttling.most_bytes
    worker.now_s += 1
    for _ in range(100):
        worker.transaction(1_000, 0.01)
    assert worker.throttling.most_bytes == bound


def test_requests_that_are_throttled_whatever_they_hold_make_no_transaction_smaller(
    worker: Throttled,
) -> None:
    """A quota on broker time (request_percentage) throttles each request by up to a second. Smaller
    transactions would only make more requests."""
    worker.hear(1)
    worker.throttling.given_up(100_000)
    bound = worker.throttling.most_bytes
    for _ in range(20):
        worker.now_s += 1
        worker.transaction(worker.throttling.most_bytes, 4.0, throttled_s=1)
    assert worker.throttling.most_bytes >= bound


def test_throttling_is_recent_for_a_minute_after_its_end(worker: Throttled) -> None:
    worker.hear(5)
    worker.now_s += 5 + RECENT_S - 1
    assert worker.throttling.is_recent
    worker.now_s += 1
    assert not worker.throttling.is_recent


def test_each_time_is_counted_and_one_a_minute_is_logged(worker: Throttled) -> None:
    with capture_logs() as logs:
        for _ in range(3):
            worker.hear(0.25)
        worker.hear(1, is_read=True)
        worker.now_s += LOG_EVERY_S
        worker.hear(0.5)
    assert worker.told == [("writing", 0.25)] * 3 + [("reading", 1), ("writing", 0.5)]
    said = [(one["direction"], one["throttled_s"]) for one in logs]
    assert said == [("writing", 0.25), ("reading", 1), ("writing", 0.5)]
    assert all("quota" in one["event"] and "runbook" in one["remedy"] for one in logs)
