"""Parts of the continuous audit: portions, counts, repeats, and the end of an earlier audit."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event, main_thread
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.continuous_audit import Totals, run_until_stopped, totals_of, with_verdicts
from spark_jobs.histories.reader import (
    NOTHING_READ,
    ReadSoFar,
    Span,
    lost_of,
    partition_states,
    span_at,
    unread,
    unread_ends,
)
from spark_jobs.kafka.snapshot import (
    Committed,
    EndRange,
    IngressPosition,
    Range,
    Snapshot,
    count_of,
    first_of,
)
from spark_jobs.results.summary import History
from spark_jobs.runtime.errors import (
    BrokerUnreachable,
    IngressGrew,
    NotOurs,
    ResultsRefused,
    StillOpen,
)
from spark_jobs.runtime.frames import local_rows, location
from tests.support.verdict_rows import delivered, undelivered, verdicts

READ = ReadSoFar(
    "i",
    "id",
    "g",
    {0: Span(1, 8)},
    {("orders", 1): 7},
    {"orders": "id-o"},
    ("later",),
    {("orders", 1): 99},
    {("i", 0): 3},
)


def test_positions_come_back_as_they_were_written() -> None:
    for read in (READ, replace(READ, judged=None), replace(READ, judged={})):
        assert ReadSoFar.from_json(json.loads(json.dumps(read.to_json()))) == read
    for broken in ({}, {**READ.to_json(), "version": 99}, {**READ.to_json(), "ends": [1]}):
        with pytest.raises((KeyError, TypeError, ValueError)):
            ReadSoFar.from_json(broken)


def test_partition_is_read_on_where_it_ended_and_anew_behind_what_was_deleted_meanwhile() -> None:
    assert span_at(3, None) == Span(3, 3)
    assert span_at(8, Span(3, 8)) == Span(3, 8)
    assert span_at(9, Span(3, 8)) == Span(9, 9)
    held = [Range("a", 0, 5, 9), Range("b", 0, 5, 9)]
    assert unread(held, {("a", 0): 7}) == [Range("a", 0, 7, 9), Range("b", 0, 5, 9)]


def test_portion_is_the_first_offsets_and_may_end_within_a_partition() -> None:
    left = [Range("i", 0, 2, 6), Range("a", 0, 7, 9), Range("a", 1, 0, 4)]
    assert count_of(left) == 10
    assert [*first_of(left, 5)] == [Range("i", 0, 2, 6), Range("a", 0, 7, 8)]
    assert [*first_of(left, 99)] == left


def test_what_was_read_in_portions_is_judged_later_and_is_judged_once() -> None:
    place = IngressPosition(Committed(0, 9), 0, 20, 0, 20, 22)
    taken = Snapshot("i", "id", (place,), (), {}, {}, 0)
    (judged,) = partition_states(taken, replace(READ, judged=None))
    assert (judged.audited_from, judged.closed_to) == (8, 8)
    (unjudged,) = partition_states(taken, READ)
    assert (unjudged.audited_from, unjudged.closed_to) == (3, 8)
    assert READ.judged_to == {("i", 0): 3}
    assert replace(READ, judged=None).judged_to == {("i", 0): 8, ("orders", 1): 7}


def test_what_the_proxy_has_not_read_gets_no_verdict_where_only_what_is_settled_counts() -> None:
    far = IngressPosition(Committed(0, 9), 0, 5_000_000, 0, 5_000_000, 5_000_001)
    taken = Snapshot("i", "id", (far,), (), {}, {}, 0)
    (state,) = partition_states(taken, NOTHING_READ, settled_only=True)
    assert (state.audited_to, state.read_to, state.log_end) == (9, 1_000_009, 5_000_001)
    set_back = replace(taken, ingress=(replace(far, committed=Committed(0, 2)),))
    (state,) = partition_states(set_back, READ, settled_only=True)
    assert (state.audited_to, state.read_to) == (8, 1_000_002)


def test_ends_deleted_after_they_were_read_are_no_loss_and_another_topic_is_read_anew() -> None:
    aged = EndRange(Range("a", 0, 5, 9), has_lost=True, first_ms=50)
    taken = Snapshot("i", "id", (), (aged,), {}, {"a": "id-a"}, 0)

    def read(end: int, topic_id: str = "id-a") -> ReadSoFar:
        return ReadSoFar("i", "id", "g", {}, {("a", 0): end}, {"a": topic_id})

    assert unread_ends(taken, NOTHING_READ) == [aged]
    assert unread_ends(taken, read(4)) == [aged]
    assert unread_ends(taken, read(6)) == [EndRange(Range("a", 0, 6, 9), False, None)]
    assert unread_ends(taken, read(10, "another")) == [replace(aged, is_recreated=True)]
    with pytest.raises(NotOurs, match="created anew"):
        unread_ends(taken, read(10))


def test_what_was_deleted_before_a_portion_was_read_is_known_by_the_audit_that_judges_it() -> None:
    held = EndRange(Range("a", 0, 5, 9), has_lost=True, first_ms=50)
    taken = Snapshot("i", "id", (), (held,), {}, {"a": "id-a"}, 70)
    assert lost_of(taken) == {("a", 0): 50}
    assert lost_of(replace(taken, ends=(replace(held, first_ms=None),))) == {("a", 0): 70}
    assert lost_of(replace(taken, ends=(replace(held, has_lost=False),))) == {}
    anew = replace(held, has_lost=False, is_recreated=True)
    assert lost_of(replace(taken, ends=(anew,))) == {("a", 0): 70}
    read = ReadSoFar("i", "id", "g", {}, {("a", 0): 7}, {"a": "id-a"}, (), {("a", 0): 60})
    assert unread_ends(taken, read) == [EndRange(Range("a", 0, 7, 9), True, 60)]
    more = replace(read, ends={("a", 0): 3})
    assert unread_ends(taken, more) == [EndRange(Range("a", 0, 5, 9), True, 60)]
    unknown = replace(taken, ends=(replace(held, first_ms=None),))
    assert unread_ends(unknown, more) == [EndRange(Range("a", 0, 5, 9), True, None)]


@pytest.fixture
def signals() -> Iterator[None]:
    before = {one: signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)}
    yield
    for one, handler in before.items():
        signal.signal(one, handler)


class Scripted:
    """Stub that raises or returns the next of these in each round."""

    def __init__(self, *rounds: Exception | bool) -> None:
        self.rounds, self.begun = list(rounds), 0

    def do(self) -> bool:
        self.begun += 1
        found = self.rounds.pop(0)
        if isinstance(found, Exception):
            raise found
        return found


@pytest.mark.usefixtures("signals")
def test_audit_is_tried_again_after_what_passes_and_ends_by_all_else(
    capsys: pytest.CaptureFixture[str],
) -> None:
    away = BrokerUnreachable("The broker stopped answering.", "Run the audit again.")
    grew, is_open = IngressGrew("It grew.", "Audit again."), StillOpen("It is open.", "Wait.")
    rounds = Scripted(away, grew, is_open, True, False, ResultsRefused("The disk is full."))
    with pytest.raises(ResultsRefused):
        run_until_stopped(rounds.do, 0, lambda: None, again_after_s=0)
    assert rounds.begun == 6
    said = capsys.readouterr().err.splitlines()
    assert said == [f"{one} (The audit tries again by itself.)" for one in (away, grew, is_open)]


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_signal_interrupts_the_round_and_whatever_that_raises_is_no_error(
    sent: signal.Signals,
) -> None:
    interrupted = Event()

    def do() -> bool:
        signal.pthread_kill(main_thread().ident or 0, sent)
        interrupted.wait()
        raise ResultsRefused("Spark was interrupted.")

    run_until_stopped(do, 60, interrupted.set)


@pytest.mark.usefixtures("signals")
def test_signal_between_two_rounds_ends_the_wait() -> None:
    rounds = Scripted(False)

    def do() -> bool:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        return rounds.do()

    before = signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    try:
        run_until_stopped(do, 3_600, lambda: None)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert rounds.begun == 1


def test_totals_count_what_has_ended(spark: SparkSession) -> None:
    early = {"verdict": "early", "is_violation": True}
    twice: dict[str, Any] = {"verdict": "duplicated", "is_violation": True}
    rows: list[dict[str, Any]] = [
        delivered(1, 60_000, lateness_ms=9),
        delivered(2, 119_999, lateness_ms=400),
        delivered(3, 120_000, lateness_ms=-3, **early),
        undelivered(4, "pending"),
        undelivered(4, "overdue", is_violation=True),
        undelivered(5, "cancelled", due_ms=10**15),
        undelivered(6, "applied", due_ms=None, timestamp_ms=60_500, target=None),
        undelivered(7, due_ms=None, timestamp_ms=None, delivered_ms=180_007, **twice),
        undelivered(8, due_ms=None, timestamp_ms=None, target=None, **twice),
    ]
    before = Totals("a", {"delivered": 3}, {}, {"10": 3}, 3, 7)
    totals = with_verdicts(before, verdicts(spark, rows))
    broken = {"early": 1, "duplicated": 2}
    assert totals.verdicts == {"delivered": 5, "cancelled": 1, "applied": 1, **broken}
    assert (totals.violations, totals.deliveries) == (broken, 5)
    assert (totals.late_by["10"], totals.late_by["500"], totals.late_sum_ms) == (4, 2, 416)


def test_totals_that_cannot_be_read_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    history = History(spark, location(tmp_path))
    assert totals_of(history) == Totals()
    for broken in ("{", '{"unknown": 1}'):
        history.tables.replace(
            "totals", local_rows(spark, [{"totals": broken}], {"totals": "string"})
        )
        with pytest.raises(ResultsRefused, match="counted again"):
            totals_of(history)
