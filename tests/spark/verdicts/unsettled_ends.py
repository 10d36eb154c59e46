"""Stories of ends that are still open, doubled, or beyond the end of reading."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from spark_jobs.audit_scope import ALWAYS_MS, AuditScope, LatenessLimits, Unseen
from tests.spark.verdicts.topics_told import SEEN, Story, Topics


def what_an_open_transaction_may_say_of_a_record_is_waited_for(t: Topics) -> None:
    later: dict[str, Any] = {"wanted_ms": 150_000, "due_ms": 150_000}
    going = t.record("pending", "open in outcomes", **later, fires_ms=50_000)
    t.record("pending", "open in outcomes", **later, hop_from=going, timestamp_ms=50_500)
    t.letter(t.record("pending", "open in outcomes", kind="refused"), "id-bad")
    rolled = t.record("rolled", **later, fires_ms=50_000)
    t.outcome(rolled, "rolled")
    t.record("pending", **later, hop_from=rolled, first_origin=t.origin(rolled))
    t.record("pending", "open in outcomes", **later, hop_from=rolled, moved_due_ms=150_000)


def what_may_have_been_let_go_unseen_is_not_overdue(t: Topics) -> None:
    held: dict[str, Any] = {"due_ms": 50_000, "wanted_ms": 2**60, "fires_ms": 2**60}
    stamps = "timer-origin,timer-due,timer-first-origin"
    for expected in ("pending", "overdue"):
        first = t.record("requeued")
        t.outcome(first, "requeued")
        began: dict[str, Any] = {"first_offset": first, "first_origin": t.origin(first)}
        paused = t.record(expected, hop_from=first, **began, **held)
        if expected == "pending":
            let_go = t.record("pending", hop_from=paused, moved_due_ms=50_000, **began)
            t.delivered(let_go, stamps=stamps, first_origin=t.origin(first))


def dead_letter_that_an_open_transaction_may_hold_is_waited_for(t: Topics) -> None:
    t.outcome(t.record("pending", "open in letters"), "dead-lettered")


def what_comes_with_the_next_commit_is_waited_for(t: Topics) -> None:
    t.log_end = 2_001
    undue = t.record("pending", "its dead letter was not yet written", due_ms=150_000)
    t.outcome(undue, "dead-lettered")
    t.outcome(t.record("pending", "its successor was not yet read"), "requeued")


def what_earlier_records_asked_for_is_not_known_where_their_settings_are_gone(t: Topics) -> None:
    t.read_from, t.settings_from = 0, 11
    gone = t.record("unverifiable", "the settings that applied to it are unknown", kind=None)
    t.outcome(t.record("applied", kind="cancel", ident=b"a"), "applied")
    t.outcome(t.record("missed", kind="cancel", ident=b"b"), "missed")
    rewritten = t.record("replaced", ident=b"r", hop_from=gone, first_origin=t.origin(gone))
    t.outcome(rewritten, "replaced", next_offset=4)


def a_second_end_is_one_too_many(t: Topics) -> None:
    t.read_from = 2
    t.expected[3] = ("duplicated", "an earlier audit saw its end")
    t.delivered(3)
    two = t.record("contradicted", "its outcomes are cancelled and expired")
    t.outcome(two, "cancelled")
    t.outcome(two, "expired", at_ms=50_005)
    twice = t.record("duplicated", "it has 2 outcomes")
    t.outcome(twice, "requeued")
    t.outcome(twice, "requeued", at_offset=6)
    buried = t.record("duplicated", "it has 2 dead letters")
    t.outcome(buried, "dead-lettered")
    t.letter(buried, "too-large")
    t.letter(buried, "too-large", at_offset=6)
    kept = t.record("contradicted", "but it has a dead letter")
    t.delivered(kept)
    t.letter(kept, "too-large")


def _open(topic: str) -> AuditScope:
    why = f"a transaction is open in {topic}"
    return replace(SEEN, unseen={(topic, 0): Unseen(ALWAYS_MS, why, is_open=True)})


STORIES: dict[Story, AuditScope] = {
    what_an_open_transaction_may_say_of_a_record_is_waited_for: _open("outcomes"),
    what_may_have_been_let_go_unseen_is_not_overdue: replace(
        _open("outcomes"), limits=LatenessLimits(60_000)
    ),
    dead_letter_that_an_open_transaction_may_hold_is_waited_for: _open("letters"),
    what_comes_with_the_next_commit_is_waited_for: SEEN,
    what_earlier_records_asked_for_is_not_known_where_their_settings_are_gone: SEEN,
    a_second_end_is_one_too_many: SEEN,
}
