"""Stories of records that were moved to another time (docs/exactly-once.md#moved-records)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from spark_jobs.audit_scope import AuditScope, LatenessLimits
from tests.spark.verdicts.purged_records import purge, purged
from tests.spark.verdicts.topics_told import NEXT_OFFSET, OUTCOMES_GONE, SEEN, Story, Topics

FIRES_MS = 150_000
LATER: dict[str, Any] = {"due_ms": FIRES_MS}
MOVED_MS = 45_000


def move(t: Topics, expected: str, of: int, detail: str = "", **other: Any) -> int:
    """Write a move, to the past (at once) unless `other` says otherwise."""
    named = going_on(t, of, other.pop("first", of))
    told = {"moved_fires_ms": FIRES_MS, "moved_due_ms": FIRES_MS, "timestamp_ms": MOVED_MS}
    return t.record(expected, detail, **{**named, **told, **other})


def going_on(t: Topics, of: int, first: int) -> dict[str, Any]:
    return {"hop_from": of, "first_offset": first, "first_origin": t.origin(first)}


def took(t: Topics, of: int, by: int, end: str = "replaced", **other: Any) -> None:
    t.outcome(of, end, **{"detail": "moved", "next_offset": by, "at_ms": MOVED_MS, **other})


def missed(t: Topics, one: int, **other: Any) -> None:
    t.outcome(one, "missed", detail="the record has already ended", **{"at_ms": MOVED_MS, **other})


def arrived(t: Topics, one: int, first: int, **other: Any) -> None:
    stamps = "timer-origin,timer-due,timer-first-origin"
    t.delivered(one, **{"stamps": stamps, "first_origin": t.origin(first), **other})


def a_move_takes_the_place_of_what_waits(t: Topics) -> None:
    for ident, other in ((None, None), (b"a", b"b")):
        one = t.record("replaced", "moved", ident=ident, **LATER)
        two = move(t, "delivered", one, ident=ident)
        took(t, one, two)
        arrived(t, two, one)
        one = t.record("requeued", "moved", ident=other, **LATER)
        two = move(t, "pending", one, ident=other, **LATER)
        took(t, one, two, "requeued")
        one = t.record("replaced", "moved", ident=ident, due_ms=120_000)
        two = move(t, "replaced", one, ident=ident, moved_due_ms=120_000, **LATER)
        three = move(t, "missing", two, first=one, ident=ident)
        took(t, one, two)
        took(t, two, three)
    half = t.record("replaced", "moved", kind="prepare", ident=b"t", expires_ms=190_000, **LATER)
    commit = t.record("applied", kind="commit", ident=b"t")
    t.outcome(commit, "applied")
    after = move(t, "delivered", commit, first=half, ident=b"t")
    took(t, half, after)
    arrived(t, after, half)


def what_was_moved_goes_on_as_any_other(t: Topics) -> None:
    rolls: dict[str, Any] = {"wanted_ms": FIRES_MS, "fires_ms": 90_000, **LATER}
    one = t.record("rolled", **rolls)
    t.outcome(one, "rolled", at_ms=90_000)
    named = going_on(t, one, one)
    two = t.record("replaced", **named, **rolls)
    three = move(t, "rolled", two, first=one, **rolls, moved_due_ms=FIRES_MS)
    t.expected[two] = ("requeued", "")
    took(t, two, three, "requeued")
    t.outcome(three, "rolled", at_ms=90_000)
    named["hop_from"] = three
    t.record("pending", **named, **LATER)
    one = t.record("replaced", **LATER)
    two = move(t, "requeued", one, timestamp_ms=49_000)
    took(t, one, two)
    t.outcome(two, "requeued", detail="target-unknown: it is not there")
    named = going_on(t, two, one)
    arrived(t, t.record("delivered", **named), one)


def what_was_moved_is_taken_back_as_any_other(t: Topics) -> None:
    by_id: dict[str, Any] = {"kind": "cancel", "ident": b"a"}
    recall: dict[str, Any] = {"kind": "recall"}
    for ident, control in ((None, recall), (b"a", by_id), (b"a", recall)):
        one = t.record("replaced", ident=ident, due_ms=120_000)
        two = move(t, "cancelled", one, ident=ident, moved_due_ms=120_000, **LATER)
        took(t, one, two)
        t.outcome(two, "cancelled")
        recalled = one if control is recall else None
        t.outcome(t.record("applied", recalled=recalled, **control), "applied")
    one = t.record("replaced", ident=b"r", due_ms=120_000)
    two = move(t, "replaced", one, ident=b"r", moved_due_ms=120_000, **LATER)
    took(t, one, two)
    t.outcome(two, "replaced", next_offset=two + 1)
    t.record("pending", ident=b"r", **LATER)


def purges_go_by_the_due_and_the_place_that_it_has_now(t: Topics) -> None:
    one = t.record("replaced", due_ms=120_000)
    purge(t, purge_from_ms=130_000)
    two = move(t, "cancelled", one, moved_due_ms=120_000, **LATER)
    took(t, one, two)
    purge(t, purge_to_ms=130_000)
    purged(t, two, purge(t, purge_from_ms=130_000))
    before = t.record("contradicted", "it was ended by the purge", due_ms=120_000)
    purge(t)
    two = move(t, "pending", before, moved_due_ms=120_000, **LATER)
    took(t, before, two)


def a_move_that_comes_too_late_is_a_stranger(t: Topics) -> None:
    for ident in (None, b"a"):
        one = t.record("delivered", ident=ident)
        t.delivered(one)
        late = move(t, "missed", one, ident=ident, timestamp_ms=50_500, **LATER)
        missed(t, late, at_ms=50_600)
        t.outcome(t.record("missed", kind="recall", recalled=late), "missed")
    t.outcome(t.record("missed", kind="cancel", ident=b"a"), "missed")
    one = t.record("cancelled", ident=b"b", **LATER)
    t.outcome(one, "cancelled")
    t.outcome(t.record("applied", kind="cancel", ident=b"b"), "applied")
    missed(t, move(t, "missed", one, ident=b"b"))
    one = t.record("replaced", **LATER)
    two = move(t, "pending", one, due_ms=160_000)
    took(t, one, two)
    missed(t, move(t, "missed", one, due_ms=170_000))
    move(t, "pending", two, first=one, offset=NEXT_OFFSET + 1, **LATER)
    one = t.record("rolled", wanted_ms=FIRES_MS, fires_ms=44_000, **LATER)
    t.outcome(one, "rolled", at_ms=44_000)
    missed(t, move(t, "missed", one))
    named = going_on(t, one, one)
    t.record("pending", **named, **LATER)
    move(t, "pending", t.record("pending", **LATER), offset=NEXT_OFFSET + 2)
    wrong = move(t, "altered", 9, "missed with a different due", **LATER)
    missed(t, wrong, due_ms=7)
    for ident in (None, b"w"):
        waiting = t.record("pending", ident=ident, **LATER)
        said = f"at offset {waiting}, is still pending"
        missed(t, move(t, "contradicted", waiting, said, ident=ident))


def a_move_that_is_refused_ends_in_the_place_that_it_takes(t: Topics) -> None:
    """A missed move is believed: without its id nothing proves or refutes it."""
    refused: dict[str, Any] = {"kind": "refused", "code": "target-refused", "due_ms": None}

    def buried(expected: str, of: int, detail: str = "", **other: Any) -> int:
        letter = move(t, expected, of, detail, **refused, **other)
        t.outcome(letter, "dead-lettered", at_ms=MOVED_MS)
        t.letter(letter, "target-refused", at_ms=MOVED_MS)
        return letter

    for ident, other in ((None, None), (b"a", b"b")):
        one = t.record("requeued", "moved", ident=ident, **LATER)
        took(t, one, buried("dead_lettered", one), "requeued")
        one = t.record("delivered", ident=other)
        t.delivered(one)
        missed(t, move(t, "missed", one, **refused, timestamp_ms=50_500), at_ms=50_600)
        buried("contradicted", one, f"it continues offset {one}, which has no outcome")
    missed(t, move(t, "missed", t.record("pending", **LATER), **refused))
    t.outcome(t.record("contradicted", "it must be refused", **refused), "missed")


def what_says_that_it_missed_and_what_it_named_are_held_together(t: Topics) -> None:
    for ident, other in ((None, None), (b"a", b"b")):
        one = t.record("delivered", ident=ident, due_ms=60_000)
        t.delivered(one, due_ms=60_000, at_ms=60_004)
        wrong = "15004 ms later"
        missed(t, move(t, "contradicted", one, wrong, ident=ident))
        one = t.record("delivered", ident=other)
        t.delivered(one)
        missed(t, move(t, "missed", one, ident=other))
    one = t.record("missing", "replaced, but it has no successor", **LATER)
    two = move(t, "missed", one)
    took(t, one, two)
    missed(t, two)
    t.outcome(t.record("contradicted", "no later record", **LATER), "missed")


def no_record_is_delivered_beside_its_move(t: Topics) -> None:
    for ident in (None, b"a"):
        one = t.record("contradicted", "it was delivered, but its outcome is replaced", ident=ident)
        two = move(t, "delivered", one, ident=ident, moved_due_ms=50_000, due_ms=49_000)
        took(t, one, two)
        t.delivered(one)
        arrived(t, two, one, due_ms=49_000)
    one = t.record("delivered")
    t.delivered(one)
    arrived(t, move(t, "contradicted", one, "which has no outcome"), one)
    one = t.record("cancelled", ident=b"b", **LATER)
    t.outcome(one, "cancelled")
    t.outcome(t.record("applied", kind="cancel", ident=b"b"), "applied")
    arrived(t, move(t, "contradicted", one, "which has no outcome", ident=b"b"), one)
    one = t.record("replaced", **LATER)
    two = move(t, "pending", one, due_ms=160_000)
    took(t, one, two)
    arrived(t, move(t, "contradicted", one, f"ended as replaced by offset {two}"), one)
    t.expected[one] = ("duplicated", "it has 2 successors")


def a_move_that_took_no_place_and_says_nothing_is_no_record(t: Topics) -> None:
    one = t.record("delivered")
    t.delivered(one)
    move(t, "contradicted", one, "has no outcome", **LATER)


def nothing_but_a_move_takes_a_place(t: Topics) -> None:
    one = t.record("contradicted", "the next record with its id is a cancel", ident=b"a", **LATER)
    t.outcome(t.record("missed", kind="cancel", ident=b"a"), "missed")
    two = move(t, "pending", one, ident=b"a", due_ms=160_000)
    took(t, one, two)
    t.expected[two - 1] = ("missed", "")
    one = t.record("missing", "it has no successor", **LATER)
    took(t, one, t.record("pending", **LATER))
    one = t.record("contradicted", "its successor is at offset", **LATER)
    two = move(t, "contradicted", one, "ended as replaced by offset 7", due_ms=160_000)
    arrived(t, two, one, due_ms=160_000, at_ms=160_001)
    took(t, one, 7)
    one = t.record("contradicted", "a due that contradicts this", **LATER)
    took(t, one, move(t, "pending", one, due_ms=160_000), "requeued")
    one = t.record("contradicted", "a due that contradicts this", **LATER)
    took(t, one, move(t, "pending", one, **LATER))


def a_move_keeps_all_but_the_time(t: Topics) -> None:
    others: dict[str, dict[str, Any]] = {"value": {"value_hash": 9}, "key": {"key_hash": 9}}
    for name, other in others.items():
        one = t.record("altered", f"a different {name}", **LATER)
        took(t, one, move(t, "pending", one, due_ms=160_000, **other))
    one = t.record("altered", "a different due", **LATER)
    took(t, one, move(t, "pending", one, moved_due_ms=150_001, due_ms=160_000))
    one = t.record("replaced", **LATER)
    two = move(t, "early", one, due_ms=60_000)
    took(t, one, two)
    arrived(t, two, one, due_ms=60_000, at_ms=59_999)


def outcomes_of_moves_may_have_been_deleted(t: Topics) -> None:
    one = t.record("unverifiable", "outcomes are gone", due_ms=80_000)
    arrived(t, move(t, "unverifiable", one, "outcome is gone", moved_due_ms=80_000), one)
    one = t.record("delivered", due_ms=44_000)
    t.delivered(one, due_ms=44_000, at_ms=44_001)
    move(t, "unverifiable", one, "outcome is gone", **LATER)
    one = t.record("rolled", wanted_ms=FIRES_MS, fires_ms=46_000, **LATER)
    t.outcome(one, "rolled", at_ms=46_000)
    move(t, "unverifiable", one, "it may have come too late", **LATER)
    named = going_on(t, one, one)
    t.record("pending", **named, **LATER)


def what_a_move_names_may_have_been_deleted(t: Topics) -> None:
    t.read_from = 10
    arrived(t, move(t, "delivered", 3), 3)
    missed(t, move(t, "missed", 4))


def a_move_ends_its_record_where_only_what_is_settled_counts(t: Topics) -> None:
    one = t.record("replaced", **LATER)
    two = move(t, "pending", one, due_ms=160_000)
    took(t, one, two)
    missed(t, move(t, "missed", one, due_ms=170_000))
    one = t.record("pending", **LATER)
    ahead = move(t, "pending", one, due_ms=160_000, offset=NEXT_OFFSET + 1)
    took(t, one, ahead)
    missed(t, move(t, "pending", one, due_ms=170_000, offset=NEXT_OFFSET + 2))


def what_is_let_go_after_a_pause_is_late_and_what_was_moved_counts_from_then_on(t: Topics) -> None:
    """The limit is 2 s."""
    first = t.record("requeued")
    t.outcome(first, "requeued")
    paused = t.record("requeued", "moved", **going_on(t, first, first), wanted_ms=FIRES_MS)
    let_go: dict[str, Any] = {"first": first, "moved_due_ms": 50_000, "timestamp_ms": 90_000}
    after = move(t, "late", paused, "arrived 40100 ms late", **let_go)
    took(t, paused, after, "requeued", at_ms=90_050)
    arrived(t, after, first, at_ms=90_100)
    one = t.record("replaced", "moved", **LATER)
    two = move(t, "delivered", one, timestamp_ms=90_000)
    took(t, one, two, at_ms=90_050)
    arrived(t, two, one, at_ms=90_100)


GONE = replace(SEEN, unseen=OUTCOMES_GONE)
STORIES: dict[Story, AuditScope] = {
    a_move_takes_the_place_of_what_waits: SEEN,
    what_was_moved_goes_on_as_any_other: SEEN,
    what_was_moved_is_taken_back_as_any_other: SEEN,
    purges_go_by_the_due_and_the_place_that_it_has_now: SEEN,
    a_move_that_comes_too_late_is_a_stranger: SEEN,
    a_move_that_is_refused_ends_in_the_place_that_it_takes: SEEN,
    what_says_that_it_missed_and_what_it_named_are_held_together: SEEN,
    no_record_is_delivered_beside_its_move: SEEN,
    a_move_that_took_no_place_and_says_nothing_is_no_record: SEEN,
    nothing_but_a_move_takes_a_place: SEEN,
    a_move_keeps_all_but_the_time: SEEN,
    outcomes_of_moves_may_have_been_deleted: GONE,
    what_a_move_names_may_have_been_deleted: SEEN,
    what_is_let_go_after_a_pause_is_late_and_what_was_moved_counts_from_then_on: replace(
        SEEN, limits=LatenessLimits(2_000)
    ),
    a_move_ends_its_record_where_only_what_is_settled_counts: replace(SEEN, settled_only=True),
}
