"""Stories of dead letters: beside other ends, and of what found no room."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from spark_jobs.circumstances.circumstances import Circumstances
from spark_jobs.circumstances.overdue_rules import OverdueRule, OverdueRules
from tests.spark.verdicts.topics_told import SEEN, Story, Topics

LATER: dict[str, Any] = {"due_ms": 150_000}


def a_dead_letter_stands_beside_no_other_end(t: Topics) -> None:
    """Replayed, it would be delivered beside what became of the record."""

    def beside(end: str, code: str = "publish-failed", **other: Any) -> int:
        told = {name: other.pop(name) for name in ("detail", "next_offset") if name in other}
        both = f"its outcome is {end}, and there is a dead letter of it"
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


def what_found_no_room_has_ended_as_it_was_read(t: Topics) -> None:
    def shed(expected: str, detail: str, **other: Any) -> int:
        offset = t.record(expected, detail, **LATER, **other)
        t.outcome(offset, "dead-lettered", detail="too-many: 2 wait (admission.records)")
        return offset

    shed("contradicted", "dead-lettered, without a dead letter")
    shed("contradicted", "dead-lettered, without", kind="prepare", ident=b"h")
    t.letter(shed("dead_lettered", ""), "too-many")


SINCE_EVER = OverdueRules(0, (OverdueRule("old*", 5_000, "drop"),))
BURIED = replace(SEEN, overdue_rules=SINCE_EVER)
STORIES: dict[Story, Circumstances] = {
    a_dead_letter_stands_beside_no_other_end: BURIED,
    what_found_no_room_has_ended_as_it_was_read: BURIED,
}
"""What is told, and the circumstances under which it is judged."""
