"""Sums of the overload scenario, second by second, without a broker."""

import math

import numpy as np
import pytest

from tools.benchmarks.by_second import Course, by_second, recovered_s, short_against_long
from tools.benchmarks.reader import Arrivals
from tools.benchmarks.scenarios.overload import Overload
from tools.benchmarks.steady import Streamed
from tools.benchmarks.verdict import Lateness, Verdict

START_MS = 10_000.0


def course(
    *records: tuple[float, int, float], memory: tuple[tuple[float, int], ...] = ()
) -> Course:
    """Return records as (sent, due, late), all in ms."""
    sent_ms, due_ms, late_ms = (
        np.array(column, np.float64) for column in zip(*records, strict=True)
    )
    arrivals = Arrivals(
        np.arange(len(records)),
        (START_MS + due_ms).astype(np.int64),
        START_MS + due_ms + late_ms,
        cpu_s=0.0,
    )
    return Course(arrivals, START_MS + sent_ms, memory)


def overload(offered_per_s: float, worst_ms: float) -> Overload:
    """Return 30 s on a proxy of 1,000 records/s. It was late by `worst_ms` once, and by twice as
    much before the overload."""
    late = Lateness(1, worst_ms, worst_ms, worst_ms, worst_ms)
    found = course((-9_000, -5_000, 2 * worst_ms), (0, 2_000, worst_ms))
    return Overload(
        climb=None,
        held_per_s=1_000,
        overload_s=30,
        before=late,
        stream=Streamed(1_500, 1, offered_per_s, late, Verdict(1, 0, 0, 0), {}, 0.0, 0.0),
        limit_ms=500,
        recovered_s=0,
        short_against_long=1.0,
        seconds=by_second(found, START_MS),
    )


def test_a_record_counts_where_it_was_sent_where_it_was_due_and_where_it_came() -> None:
    seconds = by_second(course((0, 1_500, 900.0)), START_MS)
    assert [(second.at_s, second.sent, second.due, second.delivered) for second in seconds] == [
        (0, 1, 0, 0),
        (1, 0, 1, 0),
        (2, 0, 0, 1),
    ]


def test_what_was_sent_before_the_start_has_seconds_below_zero() -> None:
    assert [second.at_s for second in by_second(course((-1_500, -900, 0.0)), START_MS)] == [-2, -1]


def test_lateness_is_told_apart_by_whether_the_delay_is_below_a_second() -> None:
    second = by_second(course((0, 999, 300.0), (-1, 999, 7.0)), START_MS)[1]
    assert (second.at_s, second.short.p50_ms, second.long.p50_ms) == (0, 300.0, 7.0)


def test_the_worst_of_a_second_is_that_of_the_later_kind_and_nothing_where_nothing_was_due() -> (
    None
):
    first, second = by_second(course((0, 999, 300.0)), START_MS)
    assert first.worst_p99_ms == 300.0
    assert second.due == 0
    assert math.isnan(second.worst_p99_ms)


def test_what_came_in_a_second_has_the_lateness_it_came_with_whenever_it_was_due() -> None:
    seconds = by_second(course((0, 100, 2_500.0)), START_MS)
    assert [second.delivered_p99_ms for second in seconds][2] == 2_500.0
    assert math.isnan(seconds[0].delivered_p99_ms)


def test_memory_is_that_of_the_looks_around_a_second() -> None:
    looks = ((START_MS, 1_000_000), (START_MS + 2_000, 3_000_000))
    seconds = by_second(course((0, 1_500, 0.0), memory=looks), START_MS)
    assert [second.anonymous_mb for second in seconds] == [2.0, 3.0]


def test_short_delays_that_are_three_times_as_late_as_long_ones_are_a_three() -> None:
    found = course((0, 500, 300.0), (0, 500, 600.0), (0, 2_000, 150.0), (0, 9_000, 9_999.0))
    assert short_against_long(found, START_MS, START_MS + 3_000) == 3.0


@pytest.mark.parametrize(
    ("late_ms", "after_s"), [([10, 10], 0), ([2_500, 10], 3), ([2_500, 10, 4_200], 5)]
)
def test_it_has_recovered_when_nothing_later_comes_late(late_ms: list[float], after_s: int) -> None:
    arrivals = course(*[(0, 0, late) for late in late_ms]).arrivals
    assert recovered_s(arrivals, START_MS, limit_ms=500) == after_s


def test_one_late_record_among_many_of_its_second_is_normal() -> None:
    arrivals = course((0, 0, 2_500.0), *[(0, 2_400, 1.0)] * 500).arrivals
    assert recovered_s(arrivals, START_MS, limit_ms=500) == 0


def test_what_came_before_the_end_of_the_overload_is_no_part_of_the_recovery() -> None:
    arrivals = course((0, -2_900, 800.0)).arrivals
    assert recovered_s(arrivals, START_MS, limit_ms=500) == 0


def test_lateness_is_held_against_what_the_excess_leaves_undone() -> None:
    assert overload(1_500, worst_ms=15_000).worst_against_excess == 1.0
    assert overload(1_500, worst_ms=30_000).worst_against_excess == 2.0


def test_where_no_more_was_offered_than_is_held_there_is_no_excess() -> None:
    assert math.isnan(overload(900, worst_ms=10).worst_against_excess)
