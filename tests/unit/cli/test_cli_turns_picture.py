"""The picture of a minute: which turn stands for each piece of it."""

from __future__ import annotations

import pytest

from proxy.telemetry.turn_summary import columns
from tests.support.simulation.timed_loop import TimedLoop

picture = pytest.importorskip("proxy.cli.turns.picture")


def shown(loop: TimedLoop) -> list[int]:
    """By 50 ms: the length of the turn that stands for it, in ms; -1 where there is none."""
    minute = picture._Minute(columns(loop.log.read(10_000).rows))
    _starts, turns = picture._longest_by_column(minute)
    return [-1 if turn < 0 else round(minute.busy[turn] * 1000) for turn in turns]


def test_the_longest_of_many_turns_stands_for_all_and_a_long_one_fills_its_time() -> None:
    loop = TimedLoop()
    for milliseconds in (5, 20, 10, 5):
        loop.turn(put=milliseconds / 1000)
    loop.pass_s(0.01)
    loop.turn(due=0.17)
    loop.turn(tidy=0.002)
    assert shown(loop) == [20, 170, 170, 170, 170]


def test_a_wait_for_records_is_not_drawn() -> None:
    loop = TimedLoop()
    loop.turn(fetch=0.048, may_wait=0.05)
    loop.turn(fetch=0.05, may_wait=0.03)
    assert shown(loop) == [20, 20]


def test_a_turn_of_hours_is_cut_to_what_can_be_drawn() -> None:
    loop = TimedLoop()
    loop.pass_s(7_200.0)
    loop.turn(put=0.001)
    assert set(shown(loop)) == {7_200_000}
    assert len(shown(loop)) == pytest.approx(1_500, abs=2)
