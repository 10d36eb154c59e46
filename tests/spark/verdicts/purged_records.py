"""Stories of records that were pending when a purge was read (docs/exactly-once.md#purges)."""

from __future__ import annotations

from typing import Any

from spark_jobs.audit_scope import AuditScope
from tests.spark.verdicts.topics_told import NEXT_OFFSET, SEEN, T_MS, Story, Topics

LATER: dict[str, Any] = {"due_ms": 150_000}
FOREVER: dict[str, Any] = {"purge_from_ms": 0, "purge_to_ms": 2**63 - 1}
APPLIED_MS = 45_000


def purge(t: Topics, expected: str = "applied", detail: str = "", **other: Any) -> int:
    told = {"kind": "purge", "target": "ord*", "timestamp_ms": 44_000, **FOREVER, **other}
    offset = t.record(expected, detail, **told)
    t.outcome(offset, "applied", at_ms=APPLIED_MS, due_ms=None)
    return offset


def purged(t: Topics, offset: int, by: int, **other: Any) -> None:
    t.outcome(offset, "cancelled", **{"detail": f"purged by {t.origin(by)}", **other})


def successor(t: Topics, expected: str, of: int, detail: str = "", **other: Any) -> int:
    told = {"hop_from": of, "first_offset": of, "first_origin": t.origin(of), **LATER}
    return t.record(expected, detail, timestamp_ms=90_500, **{**told, **other})


def rolled(t: Topics, **other: Any) -> int:
    offset = t.record("rolled", **{"wanted_ms": 150_000, "fires_ms": 90_000, **LATER, **other})
    t.outcome(offset, "rolled", at_ms=90_000)
    return offset


def a_purge_ends_what_waits_for_its_targets(t: Topics) -> None:
    waiting = [t.record("cancelled", ident=ident, **LATER) for ident in (None, b"a")]
    t.record("pending", **LATER)
    t.record("missing", due_ms=T_MS - 1)
    t.delivered(t.record("delivered"))
    t.delivered(t.record("delivered", target="mail"), topic="mail", at_ms=90_000)
    by = purge(t)
    for one in waiting:
        purged(t, one, by)
    t.record("pending", **LATER)
    t.delivered(t.record("delivered"), at_ms=90_000)


def a_purge_is_of_dues_from_one_time_to_another(t: Topics) -> None:
    dues_ms = (149_999, 150_000, 150_001, 150_002)
    before, first, last, after = (
        t.record(said, "which does not cover it" * (said == "contradicted"), due_ms=due_ms)
        for due_ms, said in zip(
            dues_ms, ("contradicted", "cancelled", "cancelled", "contradicted"), strict=True
        )
    )
    by = purge(t, purge_from_ms=150_000, purge_to_ms=150_001)
    for one in (before, first, last, after):
        purged(t, one, by)


def a_purge_has_a_pattern_of_targets(t: Topics) -> None:
    by_pattern = {"shop-[ab]?": ("cancelled", "contradicted"), "[!a]*.ü": ("contradicted",) * 2}
    for pattern, said in by_pattern.items():
        asked = [
            t.record(verdict, target=target, **LATER)
            for target, verdict in zip(("shop-b7", "shop-c7"), said, strict=True)
        ]
        by = purge(t, target=pattern)
        for one in asked:
            purged(t, one, by)


def what_names_a_purge_was_ended_by_it(t: Topics) -> None:
    wrong = t.record("contradicted", "it was ended by the purge at", **LATER)
    unnamed = t.record("contradicted", "it was ended by the purge at", **LATER)
    right = t.record("cancelled", **LATER)
    first, second = purge(t), purge(t)
    purged(t, wrong, second)
    t.outcome(unnamed, "cancelled")
    purged(t, right, first)
    later = t.record("contradicted", "which does not cover it; no later record", **LATER)
    purged(t, later, first)
    nothing = t.record("contradicted", "which does not cover it", **LATER)
    purged(t, nothing, nothing + 500)
    mail: dict[str, Any] = {"target": "mail", **LATER}
    cancelled = t.record("contradicted", "which does not cover it; the next", ident=b"c", **mail)
    t.outcome(t.record("applied", kind="cancel", ident=b"c"), "applied")
    ended = t.record("cancelled", ident=b"d", **mail)
    t.outcome(ended, "cancelled")
    t.outcome(t.record("applied", kind="cancel", ident=b"d"), "applied")
    purged(t, cancelled, purge(t, target="mail"))


def a_purge_says_that_it_was_applied(t: Topics) -> None:
    waiting = t.record("contradicted", "which does not cover it", **LATER)
    missed = t.record("contradicted", "should say applied", kind="purge", target="*", **FOREVER)
    t.outcome(missed, "missed", due_ms=None)
    purged(t, waiting, missed)
    t.record("missing", kind="purge", target="mail", **FOREVER)
    t.record("pending", kind="purge", target="x", offset=NEXT_OFFSET + 1, **FOREVER)
    t.delivered(t.record("contradicted", "a control record", kind="purge", target="m", **FOREVER))


def what_a_purge_ended_is_not_delivered_later(t: Topics) -> None:
    late = ("contradicted", "15000 ms after the purge at offset")
    t.delivered(t.record(*late), at_ms=APPLIED_MS + 15_000)
    t.delivered(t.record(*late, ident=b"a"), at_ms=APPLIED_MS + 15_000)
    half = t.record(*late, kind="prepare", ident=b"t", expires_ms=190_000)
    t.outcome(t.record("applied", kind="commit", ident=b"t"), "applied")
    t.delivered(half, at_ms=APPLIED_MS + 15_000)
    not_due = t.record("contradicted", "10 ms after the purge", due_ms=APPLIED_MS + 5_001)
    t.delivered(not_due, due_ms=APPLIED_MS + 5_001, at_ms=APPLIED_MS + 5_010)
    t.delivered(t.record("delivered"), at_ms=APPLIED_MS + 9_999)
    purge(t)


def what_a_purge_ended_is_no_dead_letter_later(t: Topics) -> None:
    """Defects are an exception: the proxy may have met them while reading."""
    for code, at_ms, *expected in (
        ("publish-failed", 60_000, "contradicted", "it became a dead letter 15000 ms after"),
        ("defect", 60_000, "dead_lettered"),
        ("publish-failed", 54_999, "dead_lettered"),
    ):
        offset = t.record(*expected)
        t.outcome(offset, "dead-lettered", at_ms=at_ms)
        t.letter(offset, code, at_ms=at_ms)
    purge(t)


def what_a_purge_ended_is_no_longer_there_for_others(t: Topics) -> None:
    first = t.record("cancelled", ident=b"a", **LATER)
    by = purge(t)
    purged(t, first, by)
    t.outcome(t.record("missed", kind="recall", recalled=first), "missed")
    t.outcome(t.record("missed", kind="cancel", ident=b"a"), "missed")
    found = "should say missed"
    t.outcome(t.record("contradicted", found, kind="cancel", ident=b"a"), "applied")
    t.outcome(t.record("contradicted", found, kind="recall", recalled=first), "applied")
    waits = t.record("pending", ident=b"b", **LATER)
    replaced = t.record("contradicted", "it was ended by the purge at", ident=b"r", **LATER)
    by = purge(t)
    t.outcome(t.record("missed", kind="cancel", ident=b"b"), "missed")
    t.outcome(t.record("contradicted", found, kind="recall", recalled=waits), "applied")
    again = t.record("cancelled", ident=b"r", **LATER)
    t.outcome(replaced, "replaced", next_offset=again)
    t.outcome(again, "cancelled")
    t.outcome(t.record("applied", kind="cancel", ident=b"r"), "applied")


def half_messages_are_purged_once_they_are_committed(t: Topics) -> None:
    undecided = {"kind": "prepare", "expires_ms": 190_000, **LATER}
    wrong = t.record("contradicted", "which does not cover it", ident=b"u", **undecided)
    open_still = t.record("pending", ident=b"o", **undecided)
    before = t.record("cancelled", ident=b"t", **undecided)
    t.outcome(t.record("applied", kind="commit", ident=b"t"), "applied")
    by = purge(t)
    for one in (wrong, before):
        purged(t, one, by)
    after = t.record(
        "contradicted", "which does not cover it", offset=open_still - 5, ident=b"n", **undecided
    )
    t.outcome(t.record("applied", kind="commit", ident=b"n"), "applied")
    purged(t, after, by)


def what_was_being_rewritten_ends_as_it_arrives(t: Topics) -> None:
    for ident in (None, b"a"):
        one = rolled(t, ident=ident)
        by = purge(t)
        purged(t, successor(t, "cancelled", one, ident=ident), by)
        one = rolled(t, ident=ident)
        by = purge(t)
        successor(t, "missing", one, ident=ident)
    one = rolled(t, ident=b"c")
    by = purge(t)
    t.outcome(t.record("missed", kind="cancel", ident=b"c"), "missed")
    purged(t, successor(t, "cancelled", one, ident=b"c"), by)
    for names_it in (True, False):
        one = rolled(t, ident=b"e")
        t.outcome(t.record("applied", kind="cancel", ident=b"e"), "applied")
        by = purge(t)
        two = successor(t, "cancelled", one, ident=b"e")
        t.outcome(two, "cancelled", detail=f"purged by {t.origin(by)}" * names_it)
    for ident, end in ((b"f", "cancelled"), (b"g", "replaced")):
        one = rolled(t, ident=ident)
        by = purge(t)
        newer = t.record("pending", ident=ident, target="mail", **LATER)
        two = successor(t, end, one, ident=ident)
        told = {"detail": f"purged by {t.origin(by)}"} if end == "cancelled" else {}
        t.outcome(two, end, next_offset=newer if end == "replaced" else None, **told)
    one = rolled(t)
    two = successor(t, "cancelled", one)
    purged(t, two, purge(t))
    one = rolled(t, due_ms=90_000, wanted_ms=90_000, fires_ms=80_000)
    purge(t)
    t.delivered(
        successor(t, "contradicted", one, "a purge that covers it", due_ms=90_000),
        due_ms=90_000,
        at_ms=90_600,
        stamps="timer-origin,timer-due,timer-first-origin",
        first_origin=t.origin(one),
    )


STORIES: dict[Story, AuditScope] = {
    a_purge_ends_what_waits_for_its_targets: SEEN,
    a_purge_is_of_dues_from_one_time_to_another: SEEN,
    a_purge_has_a_pattern_of_targets: SEEN,
    what_names_a_purge_was_ended_by_it: SEEN,
    a_purge_says_that_it_was_applied: SEEN,
    what_a_purge_ended_is_not_delivered_later: SEEN,
    what_a_purge_ended_is_no_dead_letter_later: SEEN,
    what_a_purge_ended_is_no_longer_there_for_others: SEEN,
    half_messages_are_purged_once_they_are_committed: SEEN,
    what_was_being_rewritten_ends_as_it_arrives: SEEN,
}
