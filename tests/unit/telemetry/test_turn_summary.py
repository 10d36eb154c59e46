"""Figures of a minute of turns, by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.telemetry.turn_log import OTHER, STEPS
from proxy.telemetry.turn_summary import LONGEST, columns, step_seconds, summary
from tests.support.simulation.timed_loop import BEGAN_S, EPOCH_S, TimedLoop

LENGTHS_S = st.floats(0, 5, allow_nan=False, width=32)


def figures(said: dict[str, Any], step: str) -> dict[str, Any]:
    (found,) = (one for one in said["steps"] if one["step"] == step)
    return dict(found)


def test_lengths_of_a_step_are_told_by_percentiles_and_the_share_of_the_time() -> None:
    loop = TimedLoop()
    for milliseconds in range(1, 101):
        loop.turn(fetched=2, ended=1, put=milliseconds / 1000, tidy=0.1, cpu=0.0301)
    said = summary(loop.log.read())
    assert (said["turns"], said["fetched"], said["ended"]) == (101, 200, 100)
    assert (said["seconds"], said["cpu_share"]) == pytest.approx((15.05, 0.198))
    put = figures(said, "put")
    assert (put["turns"], put["max_ms"]) == (100, 100.0)
    assert (put["p50_ms"], put["p99_ms"], put["p999_ms"]) == pytest.approx((50.5, 99.01, 99.901))
    assert put["share"] == pytest.approx(5.05 / 15.05, abs=1e-4)


def test_a_step_that_most_turns_do_without_is_measured_where_it_took_place() -> None:
    loop = TimedLoop()
    for number in range(100):
        loop.turn(put=0.001, look=0.0 if number % 25 else 0.02)
    look = figures(summary(loop.log.read()), "look")
    assert (look["turns"], look["p50_ms"]) == (4, pytest.approx(20.0))


def test_the_wait_for_a_record_is_no_work_and_what_goes_beyond_it_is() -> None:
    loop = TimedLoop()
    loop.turn(fetch=0.05, may_wait=0.05, put=0.01)
    loop.turn(fetch=0.08, may_wait=0.05, put=0.01)
    loop.turn(fetch=0.001, may_wait=0.05, put=0.005)
    longest = summary(loop.log.read())["longest"][:3]
    assert [turn["busy_ms"] for turn in longest] == pytest.approx([40.0, 10.0, 5.0])
    assert longest[0]["ms"] == pytest.approx(90.0)
    assert [turn["cpu_ms"] for turn in longest] == [0.0, 0.0, None], "the last one goes on"
    assert figures(summary(loop.log.read()), "fetch")["max_ms"] == pytest.approx(80.0)


def test_the_longest_turns_come_first_each_with_its_time_of_day_and_steps() -> None:
    loop = TimedLoop()
    for number in range(LONGEST + 5):
        loop.turn(put=0.001 * (number + 1), ended=number)
    longest = summary(loop.log.read())["longest"]
    assert [turn["ended"] for turn in longest] == list(range(LONGEST + 4, 4, -1))
    assert longest[0]["steps"]["put"] == pytest.approx(15.0)
    assert longest[0]["at"] == int((EPOCH_S + BEGAN_S + 0.105) * 1000)


@given(st.lists(st.dictionaries(st.sampled_from(STEPS), LENGTHS_S), max_size=20), LENGTHS_S)
def test_the_steps_and_what_lies_outside_them_make_up_the_whole_time(
    turns: list[dict[str, Any]], other: float
) -> None:
    """However long the steps are, their shares add up to the time covered."""
    loop = TimedLoop()
    for steps in turns:
        loop.turn(other=other, **steps)
    loop.pass_s(0.5)
    rows = loop.log.read(10_000).rows
    whole_s = float(rows["took_s"].sum())
    assert sum(took_s.sum() for took_s in step_seconds(rows).values()) == pytest.approx(whole_s)
    shares = [step["share"] for step in summary(loop.log.read(10_000))["steps"]]
    assert sum(shares) == pytest.approx(1.0, abs=1e-3)


def test_rows_are_whole_microseconds_and_records() -> None:
    loop = TimedLoop()
    loop.turn(fetched=3, ended=2, may_wait=0.05, put=0.0015, other=0.25, cpu=0.001)
    loop.log.begin()
    rows = {name: column[:-1] for name, column in columns(loop.log.read().rows).items()}
    assert rows["at_us"] == [int((EPOCH_S + BEGAN_S) * 1e6)] * 2
    assert (rows["put_us"][-1], rows[f"{OTHER}_us"][-1]) == (1_500, 250_000)
    lengths = tuple(rows[f"{name}_us"][-1] for name in ("took", "cpu", "may_wait"))
    assert lengths == (251_500, 1_000, 50_000)
    assert (rows["fetched"][-1], rows["ended"][-1]) == (3, 2)
