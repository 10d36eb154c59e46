"""Stories of dead letters: with other ends, with invented reasons, and without values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from spark_jobs.audit_scope import AuditScope, OverdueRule, OverdueRules
from tests.spark.verdicts.topics_told import SEEN, Story, Topics

HASH_OF_NO_VALUE = 42
"""Spark's xxHash64 of no bytes."""
LATER: dict[str, Any] = {"due_ms": 150_000}


def a_dead_letter_stands_beside_no_other_end(t: Topics) -> None:
    """A replay of the letter would deliver the record in addition to its end."""

    def beside(end: str, code: str = "publish-failed", **other: Any) -> int:
        told = {name: other.pop(name) for name in ("detail", "next_offset") if name in other}
        both = f"its outcome is {end}, but it has a dead letter"
        offset = t.record("contradicted", both, **other)
        t.outcome(offset, end, **told)
        t.letter(offset, code)
        return offset

    beside("cancelled", ident=b"a", **LATER)
    beside("applied", "defect", kind="cancel", ident=b"a")
    beside("replaced", ident=b"b", next_offset=13, **LATER)
    t.record("pending", ident=b"b", **LATER)
    beside("rolled-back", kind="prepare", ident=b"c")
    t.outcome(t.record("applied", kind="rollback", ident=b"c"), "applied")
    for end, fires_ms in (("rolled", 50_000), ("requeued", 150_000)):
        one = beside(end, fires_ms=fires_ms, **LATER)
        t.record("pending", hop_from=one, first_origin=t.origin(one), **LATER)
    beside("missed", "defect", kind="cancel", ident=b"d")
    dropped = "10000 ms overdue; old* allows 5000 (release.overdue)"
    beside("expired", target="old-1", detail=dropped)


def dead_letters_have_a_reason_that_there_is(t: Topics) -> None:
    def buried(expected: str, detail: str, said: str | None, **other: Any) -> None:
        offset = t.record(expected, detail, **other)
        t.outcome(offset, "dead-lettered")
        t.letter(offset, said)

    buried("dead_lettered", "", "partition-bad")
    buried("contradicted", "dead-lettered for nothing, which is not a reason", None)
    buried("contradicted", "dead-lettered for moonlight, which is not a reason", "moonlight")
    buried("contradicted", "for transaction-expired, which is not", "transaction-expired")
    refused: dict[str, Any] = {"kind": "refused", "code": "id-bad"}
    buried("contradicted", "dead-lettered for nothing, which is not a reason", None, **refused)

    def expired(expected: str, detail: str, ident: bytes, code: str | None) -> None:
        half = t.record(expected, detail, kind="prepare", ident=ident)
        told = t.record("applied", kind="expire", ident=ident, hop_from=half)
        t.outcome(told, "applied")
        t.outcome(half, "expired")
        t.letter(half, code)

    expired("expired", "", b"e", "transaction-expired")
    expired(
        "contradicted",
        "it expired, but its dead letter says publish-failed",
        b"f",
        "publish-failed",
    )
    expired("contradicted", "it expired, but its dead letter says nothing", b"g", None)


def a_dead_letter_without_its_value_is_one_of_which_the_outcome_says_so(t: Topics) -> None:
    said = "too-large: it is; its dead letter has no value: letters takes no records of this size"

    def buried(expected: str, told: str, code: str = "too-large", **other: Any) -> None:
        offset = t.record(expected, "different content" if expected == "altered" else "", **other)
        t.outcome(offset, "dead-lettered", detail=told, at_ms=60_000)
        t.letter(offset, code, value_hash=None, at_ms=60_000)

    buried("dead_lettered", said)
    buried("altered", "too-large: it is")
    buried("dead_lettered", "too-large: it is", value_hash=HASH_OF_NO_VALUE)
    buried("dead_lettered", "body-gone: it is", "body-gone")
    full = t.record("altered", "different content", value_hash=HASH_OF_NO_VALUE)
    t.outcome(full, "dead-lettered", detail=said)
    t.letter(full, "too-large")


def what_was_taken_back_before_it_could_fire_is_not_buried(t: Topics) -> None:
    def buried(offset: int, code: str) -> None:
        t.outcome(offset, "dead-lettered", detail=f"{code}: it is")
        t.letter(offset, code)

    def overtaken(expected: str, detail: str, ident: bytes, code: str) -> None:
        first = t.record("rolled", ident=ident, fires_ms=50_000, **LATER)
        t.outcome(first, "rolled")
        t.outcome(t.record("applied", kind="cancel", ident=ident), "applied")
        again: dict[str, Any] = {"hop_from": first, "first_origin": t.origin(first)}
        buried(t.record(expected, detail, ident=ident, **again, **LATER), code)

    def rolled_back(expected: str, detail: str, ident: bytes, code: str) -> None:
        buried(t.record(expected, detail, kind="prepare", ident=ident), code)
        t.outcome(t.record("applied", kind="rollback", ident=ident), "applied")

    cancelled = "its outcome is dead-lettered: the next record with its id is a cancel at offset 11"
    overtaken("contradicted", cancelled, b"i", "publish-failed")
    overtaken("dead_lettered", "", b"j", "defect")
    rolled_back("contradicted", "its decision is rollback", b"k", "publish-failed")
    rolled_back("dead_lettered", "", b"l", "defect")


SINCE_EVER = OverdueRules(0, (OverdueRule("old*", 5_000, "drop"),))
BURIED = replace(SEEN, overdue_rules=SINCE_EVER)
STORIES: dict[Story, AuditScope] = {
    a_dead_letter_stands_beside_no_other_end: BURIED,
    dead_letters_have_a_reason_that_there_is: BURIED,
    a_dead_letter_without_its_value_is_one_of_which_the_outcome_says_so: BURIED,
    what_was_taken_back_before_it_could_fire_is_not_buried: BURIED,
}
