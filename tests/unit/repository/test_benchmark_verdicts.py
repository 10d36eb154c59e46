"""The benchmarks judge before they measure. Their judgement is tested without a broker."""

import numpy as np
import pytest

from tools.benchmarks.figures import Figure, Kind
from tools.benchmarks.keys import read_keys, write_keys
from tools.benchmarks.loads import Load
from tools.benchmarks.reader import Arrivals
from tools.benchmarks.steady import Streamed, climb
from tools.benchmarks.verdict import Lateness, Verdict, judge, lateness


def load_of(count: int, first_sequence: int = 0) -> Load:
    return Load("", "", "", count, delay_ms=(0, 0), first_sequence=first_sequence)


def arrivals(*records: tuple[int, int, float]) -> Arrivals:
    """Return records as (sequence, due_ms, received_ms)."""
    sequence, due_ms, received_ms = zip(*records, strict=True)
    return Arrivals(
        np.array(sequence, np.int64), np.array(due_ms, np.int64), np.array(received_ms), cpu_s=0.0
    )


def streamed(rate: int, p99_ms: float, offered: float = 1.0, missing: int = 0) -> Streamed:
    return Streamed(
        rate=rate,
        records=rate,
        offered_per_s=rate * offered,
        lateness=Lateness(rate, 1.0, p99_ms, p99_ms, p99_ms),
        verdict=Verdict(rate, early=0, missing=missing, duplicate=0),
        cpu_us_per_record={},
        other_cores=0.0,
        anonymous_mb=0.0,
    )


def test_all_on_time_and_once_is_no_fault() -> None:
    assert judge(arrivals((0, 100, 100.0), (1, 100, 107.5)), load_of(2)).faults == 0


def test_a_record_a_fraction_of_a_millisecond_early_is_early() -> None:
    assert judge(arrivals((0, 100, 99.9)), load_of(1)) == Verdict(1, 1, 0, 0)


def test_a_record_that_never_came_is_missing() -> None:
    assert judge(arrivals((0, 100, 101.0), (2, 100, 101.0)), load_of(3)).missing == 1


def test_a_record_that_came_three_times_is_two_duplicates() -> None:
    assert judge(arrivals(*[(0, 100, 101.0)] * 3), load_of(1)).duplicate == 2


def test_a_record_that_nobody_sent_counts_as_a_fault() -> None:
    assert judge(arrivals((10, 100, 101.0), (9, 100, 101.0)), load_of(1, 10)).duplicate == 1


def test_lateness_counts_only_records_due_within_its_span() -> None:
    came = arrivals((0, 100, 190.0), (1, 200, 207.0), (2, 300, 390.0))
    assert lateness(came, 200, 300) == Lateness(1, 7.0, 7.0, 7.0, 7.0)


def test_lateness_of_nothing_is_not_zero() -> None:
    assert np.isnan(lateness(arrivals((0, 100, 101.0)), 500, 600).p99_ms)


def test_keys_carry_sequence_and_due_there_and_back() -> None:
    keys = read_keys(write_keys(41, np.array([1_795_262_504_206, 7])))
    assert keys["sequence"].tolist() == [41, 42]
    assert keys["due_ms"].tolist() == [1_795_262_504_206, 7]


@pytest.mark.parametrize(
    "not_held",
    [streamed(60, p99_ms=501), streamed(60, 10, offered=0.9), streamed(60, 10, missing=1)],
)
def test_a_rate_late_or_not_offered_or_faulty_is_not_held(not_held: Streamed) -> None:
    assert streamed(60, p99_ms=500).held(500)
    assert not not_held.held(500)


def test_climbing_halves_the_gap_above_the_highest_rate_held() -> None:
    ladder = climb(lambda rate: streamed(rate, rate / 100), (10_000, 40_000, 60_000), 1, 500)
    assert [stream.rate for stream in ladder.streams] == [10_000, 40_000, 50_000, 60_000]
    assert ladder.held_per_s == 50_000


def test_climbing_goes_beyond_the_last_rate_when_all_were_held() -> None:
    ladder = climb(lambda rate: streamed(rate, 1), (30_000,), 1, 500)
    assert ladder.held_per_s == 40_000


def test_a_short_climb_ends_with_the_first_rate_that_is_not_held() -> None:
    rates = (10_000, 40_000, 60_000, 90_000)
    ladder = climb(lambda rate: streamed(rate, rate / 60), rates, 1, 500, is_short=True)
    assert [stream.rate for stream in ladder.streams] == [10_000, 25_000, 40_000]
    assert ladder.held_per_s == 25_000


@pytest.mark.parametrize(("value", "reached"), [(30, True), (30.1, False), (float("nan"), None)])
def test_a_figure_knows_whether_its_goal_was_reached(value: float, reached: bool | None) -> None:
    assert Figure("light p99", value, "ms", Kind.TAIL, "<= 30").reached is reached
