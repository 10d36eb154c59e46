"""What a continuous audit keeps, counts and subscribes to; and where an earlier audit ended."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.circumstances.overdue_rules import OverdueRule, OverdueRules
from spark_jobs.circumstances.unseen import ALWAYS_MS, Unseen
from spark_jobs.continuous.continuous_audit import ContinuousAudit
from spark_jobs.continuous.deletions import deleted, without
from spark_jobs.continuous.gathering import first_of, left_to_read
from spark_jobs.continuous.horizon import Horizon, Position, unseen_since
from spark_jobs.continuous.state import BEFORE_ALL, Gathered, States, Tally, check_state_place
from spark_jobs.continuous.totals import Totals, with_batch
from spark_jobs.continuous.windows import changed, merged, windows_of
from spark_jobs.continuous_audit import run_until_stopped
from spark_jobs.evidence.partition_state import PartitionState, span_at, unread, unread_ends
from spark_jobs.evidence.previous_audit import NOTHING_READ, ReadSoFar, Span
from spark_jobs.kafka.positions import EndRange, Range, Snapshot, count_of
from spark_jobs.requests.policies import InForce
from spark_jobs.runtime.errors import BrokerUnreachable, NotOurs, ResultsRefused
from spark_jobs.runtime.location import location
from spark_jobs.tables.tables import Tables
from tests.support.verdict_rows import delivered, undelivered, verdicts

HORIZON = Horizon(
    99,
    "id",
    (Position(0, 1, 2, 3, 4, 5, 6, 7),),
    (InForce(0, 0, "abc"),),
    {"abc": "{}"},
    {"a": 2},
    {("a", 1): Unseen(7, "gone")},
    OverdueRules(5, (OverdueRule("a*", 1_000, "drop"),)),
    98,
    (Range("a", 0, 3, 9), Range("a", 1, 0, 4)),
    {"a": "id-a"},
)
TALLY = Tally("g at i", HORIZON, {0: Span(1, 2)}, Totals({"delivered": 3}, {}, {"10": 3}, 3, 7), 1)
READING = replace(TALLY, ends={("a", 0): 5}, gathered=Gathered(2, 3, {("a", 0): 7, ("i", 0): 1}))


STARTS = {("i", 0): 1, ("a", 0): 0, ("a", 1): 0}
"""Where the logs of READING's topics begin, while nothing is deleted."""


def test_what_is_deleted_before_it_was_read_is_left_out_and_known_as_unseen() -> None:
    gone = deleted("i", READING, {("i", 0): 4, ("a", 0): 8, ("a", 1): 3})
    assert gone.requests == [Range("i", 0, 2, 4)]
    assert gone.ends == [Range("a", 0, 7, 8), Range("a", 1, 0, 3)]
    assert "i, partition 0, from offset 2 to 3 before" in next(gone.sentences())
    left = without(HORIZON, gone, {("a", 0): 50}, 98)
    assert left.positions == (HORIZON.positions[0]._replace(log_start=4),)
    assert left.ends == (Range("a", 0, 8, 9), Range("a", 1, 3, 4))
    why = "a, partition {}, has deleted records of that time"
    assert left.unseen == {("a", n): Unseen(ms, why.format(n)) for n, ms in ((0, 50), (1, 98))}


def test_what_is_deleted_after_it_was_read_is_no_loss() -> None:
    read = {("i", 0): 2, ("a", 0): 7, ("a", 1): 0}
    gone = deleted("i", READING, read)
    assert not any(gone)
    assert without(HORIZON, gone, {}, 98) == HORIZON
    beyond = deleted("i", READING, {**STARTS, ("a", 1): 9})
    assert beyond.ends == [Range("a", 1, 0, 4)]


def test_what_was_behind_an_open_transaction_may_be_among_what_is_deleted() -> None:
    is_open = replace(HORIZON, unseen={("a", 0): Unseen(2**62, "open", is_open=True)})
    gone = deleted("i", replace(READING, horizon=is_open), {**STARTS, ("a", 0): 8})
    found = without(is_open, gone, {("a", 0): 50}, 98).unseen["a", 0]
    assert (found.until_ms, found.is_open) == (98, False)


def test_what_was_deleted_of_a_topic_before_it_was_first_seen_is_unseen() -> None:
    aged, anew = Unseen(50, "deleted"), Unseen(60, "deleted of a new one")
    compacted = Unseen(ALWAYS_MS, "compacted")
    is_open = Unseen(ALWAYS_MS, "open", is_open=True)
    before = replace(HORIZON, unseen={("a", 0): aged, ("a", 1): is_open})
    now = {("a", 0): Unseen(70, "read, and deleted"), ("a", 2): anew, ("b", 0): anew}
    assert unseen_since(None, now) == now
    assert unseen_since(before, now) == {("a", 0): aged, ("a", 2): anew, ("b", 0): anew}
    assert unseen_since(before, {("a", 0): is_open}) == {("a", 0): is_open}
    assert unseen_since(before, {("a", 0): compacted}) == {("a", 0): compacted}
    assert unseen_since(before, {}) == {("a", 0): aged}


def test_tally_and_positions_come_back_as_they_were_written() -> None:
    for tally in (TALLY, READING):
        assert Tally.from_json(json.loads(json.dumps(tally.to_json()))) == tally
    read = ReadSoFar(
        "i", "id", "g", {0: Span(1, 2)}, {("orders", 1): 7}, {"orders": "id-o"}, ("later",)
    )
    assert ReadSoFar.from_json(json.loads(json.dumps(read.to_json()))) == read
    for broken in ({}, {**read.to_json(), "version": 99}, {**read.to_json(), "ends": [1]}):
        with pytest.raises((KeyError, TypeError, ValueError)):
            ReadSoFar.from_json(broken)


def test_partition_is_read_on_where_it_ended_and_anew_behind_what_was_deleted_meanwhile() -> None:
    assert span_at(3, None) == Span(3, 3)
    assert span_at(8, Span(3, 8)) == Span(3, 8)
    assert span_at(9, Span(3, 8)) == Span(9, 9)
    held = [Range("a", 0, 5, 9), Range("b", 0, 5, 9)]
    assert unread(held, {("a", 0): 7}) == [Range("a", 0, 7, 9), Range("b", 0, 5, 9)]


def test_portion_begins_with_the_ingress_and_may_end_within_a_partition() -> None:
    state = PartitionState(0, 0, 2, 2, 6, 6, 6, 6, 4, 0, 0, 0, 0)
    left = left_to_read("i", READING, [state])
    assert left == [Range("i", 0, 2, 6), Range("a", 0, 7, 9), Range("a", 1, 0, 4)]
    assert count_of(left) == 10
    assert [*first_of(left, 5)] == [Range("i", 0, 2, 6), Range("a", 0, 7, 8)]
    assert [*first_of(left, 99)] == left
    judged = replace(TALLY, ends={("a", 0): 9, ("a", 1): 4})
    assert count_of(left_to_read("i", judged, [])) == 0


def test_ends_deleted_after_they_were_read_are_no_loss_and_another_topic_is_read_anew() -> None:
    aged = EndRange(Range("a", 0, 5, 9), has_lost=True, first_ms=50)
    taken = Snapshot("i", "id", (), (aged,), {}, {}, {"a": "id-a"}, 0)

    def read(end: int, topic_id: str = "id-a") -> ReadSoFar:
        return ReadSoFar("i", "id", "g", {}, {("a", 0): end}, {"a": topic_id})

    assert unread_ends(taken, NOTHING_READ) == [aged]
    assert unread_ends(taken, read(4)) == [aged]
    assert unread_ends(taken, read(6)) == [EndRange(Range("a", 0, 6, 9), False, None)]
    assert unread_ends(taken, read(10, "another")) == [replace(aged, is_recreated=True)]
    with pytest.raises(NotOurs, match="created anew"):
        unread_ends(taken, read(10))


def test_states_come_back_whole_and_only_the_last_two_are_kept(
    spark: SparkSession, tmp_path: Path
) -> None:
    states = States(spark, Tables(spark, location(tmp_path)))
    assert states.newest() is None
    states.begin(TALLY)
    state = states.read(BEFORE_ALL)
    assert (state.tally, state.open_version, state.windows.count()) == (TALLY, None, 0)
    windows = windows_of(verdicts(spark, [delivered(1, 60_001, 5)]), 60_000, 0)
    for batch in (0, 1, 1, 2):
        before = states.read(batch - 1)
        states.write_windows(merged(before.windows, windows, 0))
        states.write(batch, TALLY, 10 + batch)
    assert states.newest() == 2
    assert [states.read(batch).open_version for batch in (1, 2)] == [11, 12]
    assert states.read(1).windows.collect()[0].records == 2
    assert states.read(2).windows.collect()[0].records == 3
    with pytest.raises(ResultsRefused, match="Begin anew"):
        states.read(0)


class Scripted(ContinuousAudit):
    """Raises these, one in each wait; notes each beginning."""

    def __init__(self, *errors: Exception) -> None:
        self.errors, self.begun = list(errors), 0

    def start(self) -> None:
        self.begun += 1

    def wait(self, timeout_s: float) -> bool:
        raise self.errors.pop(0)


def test_audit_begins_again_after_the_broker_was_away_and_ends_by_all_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    away = BrokerUnreachable("The broker stopped answering.", "Run the audit again.")
    audit = Scripted(away, away, ResultsRefused("The disk is full."))
    with pytest.raises(ResultsRefused):
        run_until_stopped(audit, again_after_s=0)
    assert audit.begun == 2
    said = capsys.readouterr().err.splitlines()
    assert said == [f"{away} (Meanwhile it is tried again by itself.)"] * 2


def test_folder_of_something_else_is_never_taken_for_a_state(tmp_path: Path) -> None:
    check_state_place(location(tmp_path / "new"))
    check_state_place(location(tmp_path))
    (tmp_path / "mine").touch()
    with pytest.raises(ResultsRefused, match="new folder"):
        check_state_place(location(tmp_path))


def test_totals_and_windows_count_what_is_closed_by_its_due(spark: SparkSession) -> None:
    early = {"verdict": "early", "is_violation": True}
    twice: dict[str, Any] = {"verdict": "duplicated", "is_violation": True}
    rows: list[dict[str, Any]] = [
        delivered(1, 60_000, lateness_ms=9),
        delivered(2, 119_999, lateness_ms=400),
        delivered(3, 120_000, lateness_ms=-3, **early),
        undelivered(4, "pending"),
        undelivered(5, "cancelled", due_ms=10**15),
        undelivered(6, "applied", due_ms=None, timestamp_ms=60_500, target=None),
        undelivered(7, due_ms=None, timestamp_ms=None, delivered_ms=180_007, **twice),
        undelivered(8, due_ms=None, timestamp_ms=None, target=None, **twice),
    ]
    given = verdicts(spark, rows)
    totals = with_batch(TALLY.totals, given)
    broken = {"early": 1, "duplicated": 2}
    assert totals.verdicts == {"delivered": 5, "cancelled": 1, "applied": 1, **broken}
    assert (totals.violations, totals.pending, totals.deliveries) == (broken, 1, 5)
    assert (totals.late_by["10"], totals.late_by["500"], totals.late_sum_ms) == (4, 2, 416)
    added = windows_of(given, 60_000, found_ms=240_009)
    found = {(one.window_ms, one.verdict): one for one in added.collect()}
    assert found[60_000, "delivered"].records == 2
    assert found[60_000, "delivered"].late_max_ms == 400
    assert found[60_000, "applied"].late_sum_ms is None
    assert found[180_000, "duplicated"].records == found[240_000, "duplicated"].records == 1
    assert len(found) == 6
    kept = merged(added, added, older_than_ms=120_000)
    assert {one.verdict: one.records for one in kept.collect()} == {
        "early": 2,
        "cancelled": 2,
        "duplicated": 2,
    }
    again = windows_of(verdicts(spark, [rows[5], rows[2]]), 60_000, 0)
    assert [one.verdict for one in changed(kept, again).collect()] == ["early"]
