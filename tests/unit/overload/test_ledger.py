"""The ledger of the overload scenarios finds missing, doubled, early and invented records."""

import numpy as np

from tools.benchmarks.keys import read_keys, write_keys
from tools.benchmarks.verdict import Verdict
from tools.overload.ledger import Account, Ledger, Phase

DUE_MS = 1_800_000_000_000
PHASES = [Phase("first", 3), Phase("second", 2)]


def account(
    *batches: tuple[list[int], int],
    written: tuple[int, int] = (3, 2),
    phases: list[Phase] = PHASES,
    read_later_ms: int = 0,
) -> Account:
    """Account batches of (numbers, milliseconds from the due time to the broker's)."""
    ledger = Ledger(phases)
    for numbers, after_ms in batches:
        keys = [key for number in numbers for key in write_keys(number, np.array([DUE_MS]))]
        appended_ms = np.full(len(numbers), DUE_MS + after_ms)
        ledger.note(read_keys(keys), appended_ms, float(DUE_MS + after_ms + read_later_ms))
    return ledger.account(written)


def verdict(*batches: tuple[list[int], int], written: tuple[int, int] = (3, 2)) -> Verdict:
    return account(*batches, written=written).verdict


def test_all_once_and_on_time_is_no_fault() -> None:
    assert verdict(([0, 4], 0), ([1, 2, 3], 5)) == Verdict(5, early=0, missing=0, duplicate=0)


def test_a_record_that_never_came_is_missing_and_named() -> None:
    found = account(([0, 1, 2, 4], 0))
    assert found.verdict == Verdict(4, early=0, missing=1, duplicate=0)
    assert found.missing == [3]


def test_a_record_doubled_within_a_batch_or_later_is_noticed() -> None:
    assert verdict(([0, 0, 1, 2, 3, 4], 0)).duplicate == 1
    assert verdict(([0, 1, 2, 3, 4], 0), ([4, 1], 9)).duplicate == 2


def test_a_record_that_the_broker_had_early_is_early_though_it_was_read_late() -> None:
    found = account(([0, 1, 2, 3], 0), ([4], -1), read_later_ms=60_000)
    assert found.verdict == Verdict(5, early=1, missing=0, duplicate=0)


def test_a_record_that_nobody_wrote_is_a_fault() -> None:
    assert verdict(([0, 1, 2, 3, 4, 5], 0)).duplicate == 1
    assert verdict(([0, 1, 2, 3], 0), written=(2, 1)).duplicate == 1


def test_records_that_were_not_written_after_all_are_not_missing() -> None:
    assert verdict(([0, 3], 0), written=(1, 1)).faults == 0


def test_what_is_to_wait_is_neither_missing_nor_welcome() -> None:
    phases = [Phase("waiting", 3, is_awaited=False), Phase("probe", 2)]
    assert account(([3, 4], 0), phases=phases).verdict.faults == 0
    assert account(([1, 3, 4], 0), phases=phases).verdict.duplicate == 1


def test_lateness_is_told_by_phase_and_by_the_second_of_arrival() -> None:
    found = account(([0, 1, 2], 100), ([3, 4], 2_000))
    assert found.came["first"].late.records == 3
    assert found.came["first"].late.max_ms == 100
    assert found.came["second"].last_ms == DUE_MS + 2_000
    assert [(second - DUE_MS // 1000, late.records) for second, late in found.by_second] == [
        (0, 3),
        (2, 2),
    ]
