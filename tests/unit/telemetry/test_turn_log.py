"""The log of turns: what each step took, read by others while the loop goes on or stands still."""

from __future__ import annotations

import threading
from typing import Any, cast

import numpy as np
import pytest

from proxy.telemetry.turn_log import OTHER, STEPS, TURN, TurnLog, Turns
from tests.support.simulation.timed_loop import BEGAN_S, EPOCH_S, TimedLoop

KEPT = 8
READS = 300


def numbers(turns: Turns) -> list[int]:
    """Turns tell each other apart by how many records they have fetched."""
    return cast(list[int], turns.rows["fetched"].tolist())


def test_each_step_of_a_turn_is_kept_with_its_records() -> None:
    loop = TimedLoop()
    steps = {step: (place + 1) / 1000 for place, step in enumerate(STEPS)}
    loop.turn(fetched=7, ended=5, may_wait=0.05, cpu=0.02, **steps)
    loop.log.begin()
    _start, turn, _under_way = loop.log.read().rows
    assert {step: turn[step] for step in STEPS} == pytest.approx(steps)
    assert (turn["fetched"], turn["ended"]) == (7, 5)
    assert (turn["began_s"], turn["began_wall_s"]) == (BEGAN_S, EPOCH_S + BEGAN_S)
    assert (turn["took_s"], turn["cpu_s"], turn["may_wait_s"]) == pytest.approx((0.036, 0.02, 0.05))


def test_a_turn_lasts_until_the_next_begins_the_first_one_from_the_start() -> None:
    loop = TimedLoop()
    loop.pass_s(2.0)
    loop.turn(put=0.25, other=0.5)
    loop.turn(put=0.125)
    assert loop.log.read().rows["took_s"].tolist() == [2.0, 0.75, 0.125]


def test_a_step_that_fails_counts_and_raises_and_what_follows_is_outside_the_steps() -> None:
    loop = TimedLoop()

    def fail() -> None:
        loop.pass_s(0.5)
        raise ValueError("lost")

    loop.log.begin()
    with pytest.raises(ValueError, match="lost"):
        loop.log.timed("confirm", fail)
    loop.pass_s(3.0)
    seen = loop.log.read()
    assert (seen.rows["confirm"][-1], seen.doing, seen.doing_s) == (0.5, OTHER, 3.0)


def test_a_loop_that_stands_still_is_seen_with_the_step_that_it_is_at() -> None:
    loop, seen = TimedLoop(), list[Turns]()

    def stand_still() -> None:
        loop.pass_s(12.0)
        seen.append(loop.log.read())

    loop.log.begin()
    loop.log.timed("put", loop.pass_s, 1.0)
    loop.log.timed("due", stand_still)
    (turns,) = seen
    assert (turns.doing, turns.doing_s) == ("due", 12.0)
    last = turns.rows[-1]
    assert (last["put"], last["due"], last["took_s"]) == (1.0, 12.0, 13.0)


def test_the_newest_turns_take_the_place_of_the_oldest() -> None:
    loop = TimedLoop(KEPT)
    for number in range(1, 21):
        loop.turn(fetched=number, put=0.001)
    assert numbers(loop.log.read()) == list(range(21 - KEPT, 21))


def test_only_the_time_asked_for_is_read_with_the_turn_that_was_under_way_as_it_began() -> None:
    loop = TimedLoop()
    for number in range(1, 101):
        loop.turn(fetched=number, put=1.0)
    assert numbers(loop.log.read(10.0)) == list(range(90, 101))
    assert len(loop.log.read().rows) == 61
    assert numbers(loop.log.read(1_000.0)) == list(range(101))


class Overtaken:
    """Rows that the loop goes on writing while they are copied."""

    def __init__(self, loop: TimedLoop, turns: int) -> None:
        self._rows, self._loop, self._turns = loop.log._rows, loop, turns

    def __getitem__(self, name: str) -> Any:
        return self._rows[name]

    def take(self, places: Any, mode: Any) -> Any:
        for _ in range(self._turns):
            self._loop.turn(fetched=1_000, put=0.001)
        return self._rows.take(places, mode=mode)


@pytest.mark.parametrize("meanwhile", [0, 1, 3, KEPT, 5 * KEPT])
def test_turns_that_are_overwritten_while_they_are_copied_are_left_out(meanwhile: int) -> None:
    loop = TimedLoop(KEPT)
    for number in range(1, 21):
        loop.turn(fetched=number, put=0.001)
    loop.log._rows = cast(Any, Overtaken(loop, meanwhile))
    assert numbers(loop.log.read()) == list(range(min(20, 21 - KEPT + meanwhile), 21))


def test_no_turn_is_torn_while_another_thread_reads() -> None:
    log, is_over = TurnLog(KEPT), threading.Event()

    def turn_on() -> None:
        number = 0
        while not is_over.is_set():
            log.begin()
            number += 1
            log.count_fetched(number)
            log.count_ended(number)

    thread = threading.Thread(target=turn_on)
    thread.start()
    try:
        for _ in range(READS):
            finished = log.read().rows[:-1]
            assert np.array_equal(finished["fetched"], finished["ended"])
            assert np.all(np.diff(finished["fetched"].astype(np.int64)) == 1)
            assert np.all(finished["took_s"] >= 0)
    finally:
        is_over.set()
        thread.join()


def test_a_minute_of_a_thousand_turns_a_second_fits_into_5_mib() -> None:
    log = TurnLog()
    assert len(log._rows) >= 60 * 1_000
    assert log._bytes.nbytes == len(log._rows) * TURN.itemsize <= 5 << 20
