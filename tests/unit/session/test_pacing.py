"""Start times and sizes of transactions, with manual time."""

import pytest

from proxy.config.settings import ReleaseSettings
from proxy.dispatch.release_control import WorkerRateLimit
from proxy.session.pacing import (
    BUSY_INTERVAL_MS,
    BUSY_RECORDS,
    FIRST_RECORDS,
    IDLE_AT_ONCE,
    IDLE_COMMIT_MS,
    LATEST_PROGRESS_MS,
    LEAST_RECORDS,
    LONG_TRANSACTION_S,
    LONGEST_INTERVAL_MS,
    Pacing,
)

NOW_MS = 1_800_000_000_000


def a_pacing(records: int = 10_000, rate: WorkerRateLimit | None = None) -> Pacing:
    return Pacing(ReleaseSettings(transaction_records=records), rate or WorkerRateLimit())


def test_first_records_of_a_burst_do_not_wait_for_a_long_transaction() -> None:
    pacing = a_pacing()
    assert pacing.next_records == FIRST_RECORDS
    pacing.begin(FIRST_RECORDS, NOW_MS)
    pacing.committed(0.1)
    assert pacing.next_records == 2 * FIRST_RECORDS
    pacing.begin(9_000, NOW_MS)
    for _ in range(3):
        pacing.committed(0.1)
    assert pacing.next_records == pacing.largest_records == 10_000
    pacing.begin(1, NOW_MS)
    assert pacing.next_records == FIRST_RECORDS


def test_transactions_get_smaller_while_they_take_long_and_larger_again() -> None:
    pacing = a_pacing()
    for _ in range(3):
        pacing.committed(0.1)
    sizes = []
    for took_s in (9.0, 9.0, 9.0, 9.0, 9.0, 0.1, 0.1, 0.1, 0.1):
        pacing.begin(pacing.largest_records, NOW_MS)
        pacing.committed(took_s)
        sizes.append(pacing.largest_records)
    assert sizes == [5_000, 2_500, 1_250, LEAST_RECORDS, 1_000, 2_000, 4_000, 8_000, 10_000]


def test_a_broker_that_takes_long_for_a_few_records_makes_no_transaction_tiny() -> None:
    pacing = a_pacing()
    pacing.begin(3, NOW_MS)
    pacing.committed(2 * LONG_TRANSACTION_S)
    assert pacing.largest_records == LEAST_RECORDS


@pytest.mark.parametrize(
    ("shards", "records"),
    [(0, 2_000), (200, 2_000), (300, 3_000), (1_000, 10_000), (4_000, 10_000)],
)
def test_a_fetch_grows_with_the_shards_that_have_to_do_up_to_what_a_transaction_holds(
    shards: int, records: int
) -> None:
    pacing = a_pacing()
    for _ in range(3):
        pacing.committed(0.1)
    assert pacing.fetch_records(shards) == records


def test_a_fetch_is_no_larger_while_transactions_take_long() -> None:
    pacing = a_pacing()
    pacing.begin(3, NOW_MS)
    pacing.committed(2 * LONG_TRANSACTION_S)
    assert pacing.fetch_records(1_000) == 2_000


def test_no_transaction_holds_more_than_the_settings_say() -> None:
    assert a_pacing(records=3).next_records == 3


@pytest.mark.parametrize(
    ("records", "interval_ms"),
    [
        (0, 0),
        (BUSY_RECORDS - 1, 0),
        (BUSY_RECORDS, BUSY_INTERVAL_MS),
        (500, BUSY_INTERVAL_MS),
        (564, BUSY_INTERVAL_MS + 1),
        (1_999, BUSY_INTERVAL_MS + 23),
    ],
)
def test_more_records_are_gathered_the_more_the_last_transaction_held(
    records: int, interval_ms: int
) -> None:
    pacing = a_pacing()
    pacing.begin(records, NOW_MS)
    assert pacing.is_gathering == (interval_ms > 0)
    assert pacing.wait_ms(NOW_MS) == interval_ms
    assert pacing.may_begin(NOW_MS + interval_ms)
    assert not pacing.may_begin(NOW_MS + interval_ms - 1) or interval_ms == 0


def test_gathering_has_an_end() -> None:
    pacing = a_pacing()
    for _ in range(3):
        pacing.committed(0.1)
    pacing.begin(4_000, NOW_MS)
    pacing.begin(7_999, NOW_MS)
    assert pacing.wait_ms(NOW_MS) == LONGEST_INTERVAL_MS


def test_backlog_behind_a_full_transaction_does_not_wait() -> None:
    pacing = a_pacing()
    pacing.begin(FIRST_RECORDS, NOW_MS)
    assert not pacing.is_gathering
    assert pacing.may_begin(NOW_MS)


def test_mere_progress_is_committed_once_no_transaction_has_begun_for_a_while() -> None:
    pacing = a_pacing()
    pacing.begin(1, NOW_MS)
    assert not pacing.is_progress_due(NOW_MS + 49)
    assert pacing.is_progress_due(NOW_MS + 50)


@pytest.mark.parametrize(("interval_ms", "latest_ms"), [(50, LATEST_PROGRESS_MS), (9_000, 9_000)])
def test_others_transactions_hold_mere_progress_now_and_then(
    interval_ms: int, latest_ms: int
) -> None:
    pacing = Pacing(ReleaseSettings(transaction_interval_ms=interval_ms), WorkerRateLimit())
    pacing.begin(1, NOW_MS)
    for now_ms in range(NOW_MS + 10, NOW_MS + latest_ms, 10):
        assert not pacing.is_progress_due(now_ms)
        pacing.begin(1, now_ms)
    assert pacing.is_progress_due(NOW_MS + latest_ms)
    pacing.begin(1, NOW_MS + latest_ms)
    assert not pacing.is_progress_due(NOW_MS + latest_ms + 10)


def test_idle_shards_are_committed_now_and_then_some_at_a_time_whatever_others_do() -> None:
    pacing, partitions = a_pacing(), range(IDLE_AT_ONCE + 1)
    assert pacing.take_idle(partitions, NOW_MS) == set(range(IDLE_AT_ONCE))
    pacing.begin(BUSY_RECORDS, NOW_MS)
    later_ms = NOW_MS + BUSY_INTERVAL_MS
    assert pacing.take_idle(partitions, later_ms) == {IDLE_AT_ONCE}
    assert not pacing.take_idle(partitions, NOW_MS + IDLE_COMMIT_MS - 1)
    assert len(pacing.take_idle(partitions, NOW_MS + IDLE_COMMIT_MS)) == IDLE_AT_ONCE


def test_rate_lets_no_more_end_than_it_has_for_those_that_end_in_any_case() -> None:
    pacing = a_pacing(rate=WorkerRateLimit(100))
    assert pacing.records_available(5, NOW_MS) == 20
    pacing.begin(25, NOW_MS)
    assert pacing.records_available(0, NOW_MS) == 0
    assert pacing.rate_wait_ms(NOW_MS) > 0
