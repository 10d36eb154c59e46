"""Repeated fetch failures at one offset are a state. A single failure is not."""

from __future__ import annotations

import structlog

from proxy.kafka.unreadable import (
    OVER_AFTER_S,
    STUCK_AFTER,
    WARN_EVERY_S,
    FailingFetches,
)


def failed(failing: FailingFetches, times: int, offset: int = 7, since_s: float = 0) -> None:
    for number in range(times):
        failing.failed(2, offset, "it does not unpack", since_s + number / 2)


def test_the_third_failure_at_one_offset_is_a_state() -> None:
    failing = FailingFetches()
    failed(failing, STUCK_AFTER - 1)
    assert not failing.stuck
    failed(failing, 1)
    assert (failing.stuck[2].offset, failing.stuck[2].error) == (7, "it does not unpack")


def test_failures_at_other_offsets_or_with_records_between_them_are_none() -> None:
    failing = FailingFetches()
    for offset in range(9):
        failed(failing, STUCK_AFTER - 1, offset)
    failing.passed([2])
    failed(failing, STUCK_AFTER - 1, 8)
    assert not failing.stuck


def test_it_is_over_once_something_was_read_or_nothing_has_failed_for_long() -> None:
    failing = FailingFetches()
    failed(failing, STUCK_AFTER)
    failing.passed([1])
    failing.expire([1, 3], 2 * OVER_AFTER_S)
    failing.expire([2], OVER_AFTER_S)
    assert failing.stuck
    failing.expire([2], 2 * OVER_AFTER_S)
    assert not failing.stuck


def test_it_is_logged_with_partition_offset_and_remedy_once_a_minute() -> None:
    failing = FailingFetches()
    with structlog.testing.capture_logs() as logs:
        failed(failing, 2 * int(WARN_EVERY_S))
    assert len(logs) == 1
    assert (logs[0]["partition"], logs[0]["offset"]) == (2, 7)
    assert "skip --partition 2 --offset 7" in logs[0]["remedy"]
    with structlog.testing.capture_logs() as logs:
        failed(failing, 1, since_s=2 * WARN_EVERY_S)
        failing.passed([2])
    assert [line["log_level"] for line in logs] == ["error", "info"]
