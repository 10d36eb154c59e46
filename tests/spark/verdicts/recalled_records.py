"""Stories of records recalled by their origins (docs/guide.md#recall)."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

from proxy.dispatch.partitioning import partition_of
from spark_jobs.audit_scope import AuditScope, Unseen
from tests.spark.verdicts.topics_told import NEXT_OFFSET, OUTCOMES_GONE, SEEN, Story, Topics

LATER: dict[str, Any] = {"due_ms": 150_000}
ONE_GONE = replace(
    SEEN,
    partition_counts={**SEEN.partition_counts, "outcomes": 2},
    unseen={("outcomes", 1): Unseen(45_000, "1 is gone")},
)


def recall(t: Topics, expected: str, of: int, detail: str = "", **other: Any) -> int:
    return t.record(expected, detail, kind="recall", recalled=of, **other)


def successor(t: Topics, expected: str, of: int, detail: str = "", **other: Any) -> int:
    first = other.pop("first", of)
    told = {"hop_from": of, "first_offset": first, "first_origin": t.origin(first), **LATER}
    return t.record(expected, detail, timestamp_ms=90_500, **{**told, **other})


def rolled(t: Topics, expected: str = "rolled", **other: Any) -> int:
    told = {"wanted_ms": 150_000, "fires_ms": 90_000, **LATER, **other}
    offset = t.record(expected, **told)
    t.outcome(offset, "rolled", at_ms=90_000)
    return offset


def a_recall_takes_back_what_it_names(t: Topics) -> None:
    for ident in (None, b"a"):
        taken = t.record("cancelled", ident=ident, **LATER)
        t.outcome(taken, "cancelled")
        t.outcome(recall(t, "applied", taken), "applied")
        t.outcome(recall(t, "missed", taken), "missed")
        t.outcome(recall(t, "contradicted", taken, "should say missed"), "applied")
    delivered = t.record("delivered")
    t.delivered(delivered)
    t.outcome(recall(t, "missed", delivered), "missed")
    t.outcome(recall(t, "contradicted", delivered, "should say missed"), "applied")
    t.outcome(recall(t, "missed", 8), "missed")
    t.outcome(t.record("contradicted", "no later record", **LATER), "cancelled")
    waiting = t.record("pending", **LATER)
    t.outcome(recall(t, "contradicted", waiting, "should say missed"), "applied")
    recall(t, "missing", waiting)
    recall(t, "pending", waiting, offset=NEXT_OFFSET + 1)


def a_recall_is_of_one_record_and_not_of_its_id(t: Topics) -> None:
    first = t.record("replaced", ident=b"a", **LATER)
    t.outcome(first, "replaced", next_offset=first + 1)
    t.record("pending", ident=b"a", **LATER)
    t.outcome(recall(t, "missed", first), "missed")
    t.outcome(recall(t, "contradicted", first, "should say missed"), "applied")
    third = t.record("cancelled", ident=b"b", **LATER)
    t.outcome(third, "cancelled")
    t.outcome(recall(t, "applied", third), "applied")
    t.outcome(t.record("missed", kind="cancel", ident=b"b"), "missed")
    t.record("pending", ident=b"b", **LATER)
    t.outcome(recall(t, "missed", third), "missed")
    half = t.record("cancelled", kind="prepare", ident=b"t", expires_ms=190_000, **LATER)
    t.outcome(half, "cancelled")
    t.outcome(recall(t, "applied", half), "applied")


def a_recall_finds_what_was_rewritten(t: Topics) -> None:
    for ident in (None, b"r"):
        one = rolled(t, ident=ident)
        two = successor(t, "cancelled", one, ident=ident)
        t.outcome(two, "cancelled")
        t.outcome(recall(t, "applied", one), "applied")
        t.outcome(recall(t, "missed", two), "missed")
    for ident in (None, b"s"):
        one = rolled(t, ident=ident)
        two = successor(t, "cancelled", one, ident=ident)
        t.outcome(two, "cancelled")
        t.outcome(recall(t, "applied", two), "applied")
    met = rolled(t)
    t.outcome(recall(t, "applied", met), "applied")
    t.outcome(successor(t, "cancelled", met), "cancelled")
    unmet = rolled(t, due_ms=90_000, wanted_ms=90_000, fires_ms=80_000)
    t.outcome(recall(t, "applied", unmet), "applied")
    t.delivered(
        successor(t, "contradicted", unmet, due_ms=90_000),
        due_ms=90_000,
        at_ms=90_600,
        stamps="timer-origin,timer-due,timer-first-origin",
        first_origin=t.origin(unmet),
    )
    one = rolled(t)
    two = successor(t, "rolled", one, fires_ms=95_000)
    t.outcome(two, "rolled", at_ms=95_000)
    three = successor(t, "missing", two, first=one)
    t.outcome(recall(t, "missed", two), "missed")
    t.outcome(recall(t, "contradicted", three, "should say missed"), "applied")


def a_recall_that_was_ignored_is_found(t: Topics) -> None:
    late = t.record("delivered")
    t.delivered(late, at_ms=70_000)
    ignored = ("contradicted", late, f"names, at offset {late}, was delivered 20000 ms later")
    t.outcome(recall(t, *ignored, timestamp_ms=45_000), "missed", at_ms=50_000)
    named = t.record("delivered", ident=b"a")
    t.delivered(named, at_ms=70_000)
    ignored = ("contradicted", named, f"names, at offset {named}, was delivered 20000 ms later")
    t.outcome(recall(t, *ignored, timestamp_ms=45_000), "missed", at_ms=50_000)
    buried = t.record("dead_lettered")
    t.outcome(buried, "dead-lettered", at_ms=70_000)
    t.letter(buried, "publish-failed", at_ms=70_000)
    ignored = ("contradicted", buried, "or expired 20000 ms later")
    t.outcome(recall(t, *ignored, timestamp_ms=45_000), "missed", at_ms=50_000)
    at_once = t.record("delivered")
    t.delivered(at_once)
    t.outcome(recall(t, "missed", at_once), "missed", at_ms=50_000)


def a_recall_misses_nothing_that_waits_still(t: Topics) -> None:
    for ident in (None, b"w"):
        waiting = t.record("pending", ident=ident, **LATER)
        ignored = ("contradicted", waiting, f"at offset {waiting}, is still pending")
        t.outcome(recall(t, *ignored), "missed")
    one = rolled(t)
    two = successor(t, "pending", one)
    t.outcome(recall(t, "contradicted", one, f"at offset {two}, is still pending"), "missed")
    t.record("missing", ident=b"c", **LATER)
    t.outcome(t.record("contradicted", "is still pending", kind="cancel", ident=b"c"), "missed")
    t.outcome(t.record("missed", kind="cancel", ident=b"c"), "missed")


def what_recalls_missed_may_have_ended_unseen(t: Topics) -> None:
    waiting = t.record("pending", **LATER)
    t.outcome(recall(t, "missed", waiting), "missed")


def what_is_missed_must_have_an_outcome_where_that_would_be_seen(t: Topics) -> None:
    """Its partition and time must be visible. Other records may have an unseen outcome."""
    for _ in range(8):
        named = t.record("pending", **LATER)
        said = (
            ("contradicted", named, "is still pending") if _is_seen(t, named) else ("missed", named)
        )
        t.outcome(recall(t, *said), "missed")
    for _ in range(4):
        young = t.record("pending", timestamp_ms=45_001, **LATER)
        t.outcome(recall(t, "contradicted", young, "is still pending"), "missed")


def what_a_cancel_applied_to_must_have_an_outcome_where_that_would_be_seen(t: Topics) -> None:
    for number in range(8):
        is_seen, ident = _is_seen(t, t.next_offset), f"{number}".encode()
        t.record("missing" if is_seen else "unverifiable", ident=ident, **LATER)
        said = ("contradicted", "should say missed") if is_seen else ("applied",)
        t.outcome(t.record(*said, kind="cancel", ident=ident), "applied")


def _is_seen(t: Topics, offset: int) -> bool:
    return partition_of(t.origin(offset).encode(), 2) == 0


def what_recalls_name_may_have_been_deleted(t: Topics) -> None:
    t.read_from = 10
    t.outcome(recall(t, "applied", 3), "applied")
    t.outcome(recall(t, "missed", 4), "missed")


def a_recall_is_not_of_what_its_record_has_replaced_in_mid_hop(t: Topics) -> None:
    """Older proxy versions recalled it."""
    for end, said in product(("requeued", "cancelled"), ("replaced", "cancelled")):
        ident = f"{end} {said}".encode()
        one = rolled(t, ident=ident)
        other = t.record(end, ident=ident, **LATER)
        t.outcome(other, end)
        t.outcome(recall(t, "applied", other), "applied")
        two = successor(t, said, one, ident=ident)
        t.outcome(two, said, **({"next_offset": other} if said == "replaced" else {}))
        if end == "requeued":
            again = successor(t, "cancelled", other, ident=ident)
            t.outcome(again, "cancelled")


def a_recall_ends_its_record_where_only_what_is_settled_counts(t: Topics) -> None:
    taken = t.record("cancelled", **LATER)
    t.outcome(taken, "cancelled")
    t.outcome(recall(t, "applied", taken), "applied")
    claimed = t.record("contradicted", **LATER)
    t.outcome(claimed, "replaced", next_offset=claimed)
    t.outcome(recall(t, "contradicted", claimed, "should say missed"), "applied")


HASH_OF_K = -3898340214155060326
"""Spark's xxhash64 of the key `k`."""
KEYED: dict[str, Any] = {**LATER, "ingress_key_hash": HASH_OF_K}
NO_PROOFS: list[dict[str, Any]] = [
    {},
    {"known_key": b"other"},
    {"known_ident": b"k"},
    {"known_key": b"a", "known_ident": b"other"},
]


def _proven(ident: bytes | None) -> list[dict[str, Any]]:
    by_id: list[dict[str, Any]] = [{"known_ident": ident, "known_key": b"other"}] if ident else []
    return [{"known_key": b"k"}, {"known_key": b"k", "known_ident": b"other"}, *by_id]


def a_recall_without_the_right_proof_misses(t: Topics) -> None:
    for ident in (None, b"a", b"b", b"c", b"d"):
        kind = "prepare" if ident == b"d" else "record"
        expires: dict[str, Any] = {"expires_ms": 190_000} if kind == "prepare" else {}
        waiting = t.record("pending", kind=kind, ident=ident, **KEYED, **expires)
        for proof in NO_PROOFS:
            t.outcome(recall(t, "missed", waiting, needs_proof=True, **proof), "missed")
        applied = recall(t, "contradicted", waiting, "should say missed", needs_proof=True)
        t.outcome(applied, "applied")
    delivered = t.record("delivered", ingress_key_hash=HASH_OF_K)
    t.delivered(delivered, at_ms=70_000)
    wrong = recall(t, "missed", delivered, needs_proof=True, timestamp_ms=45_000)
    t.outcome(wrong, "missed", at_ms=50_000)
    buried = t.record("dead_lettered")
    t.outcome(buried, "dead-lettered", at_ms=70_000)
    t.letter(buried, "publish-failed", at_ms=70_000)
    of_none: dict[str, Any] = {"needs_proof": True, "known_key": b"k", "timestamp_ms": 45_000}
    t.outcome(recall(t, "missed", buried, **of_none), "missed", at_ms=50_000)


def a_recall_with_a_right_proof_counts(t: Topics) -> None:
    for ident in (None, b"a"):
        for proof in _proven(ident):
            taken = t.record("cancelled", ident=ident, **KEYED)
            t.outcome(taken, "cancelled")
            t.outcome(recall(t, "missed", taken, needs_proof=True), "missed")
            t.outcome(recall(t, "applied", taken, needs_proof=True, **proof), "applied")
            one = rolled(t, ident=ident, ingress_key_hash=HASH_OF_K)
            two = successor(t, "cancelled", one, ident=ident, ingress_key_hash=HASH_OF_K)
            t.outcome(two, "cancelled")
            t.outcome(recall(t, "missed", one, needs_proof=True), "missed")
            t.outcome(recall(t, "applied", two, needs_proof=True, **proof), "applied")
    ignored = t.record("delivered", ingress_key_hash=HASH_OF_K)
    t.delivered(ignored, at_ms=70_000)
    told = {"needs_proof": True, "known_key": b"k", "timestamp_ms": 45_000}
    wrong = recall(t, "contradicted", ignored, "was delivered", **told)
    t.outcome(wrong, "missed", at_ms=50_000)
    waiting = t.record("pending", **KEYED)
    found = recall(t, "contradicted", waiting, "is still pending", needs_proof=True, known_key=b"k")
    t.outcome(found, "missed")


def a_record_is_not_taken_back_in_mid_hop_by_a_wrong_proof(t: Topics) -> None:
    met = rolled(t, ingress_key_hash=HASH_OF_K)
    t.outcome(recall(t, "missed", met, needs_proof=True, known_key=b"other"), "missed")
    successor(t, "pending", met, ingress_key_hash=HASH_OF_K)
    gone = rolled(t, ingress_key_hash=HASH_OF_K)
    t.outcome(recall(t, "missed", gone, needs_proof=True, known_key=b"other"), "missed")
    ended = successor(t, "contradicted", gone, "no later record", ingress_key_hash=HASH_OF_K)
    t.outcome(ended, "cancelled")


STORIES: dict[Story, AuditScope] = {
    a_recall_takes_back_what_it_names: SEEN,
    a_recall_is_of_one_record_and_not_of_its_id: SEEN,
    a_recall_finds_what_was_rewritten: SEEN,
    a_recall_that_was_ignored_is_found: SEEN,
    a_recall_misses_nothing_that_waits_still: SEEN,
    a_recall_is_not_of_what_its_record_has_replaced_in_mid_hop: SEEN,
    what_recalls_missed_may_have_ended_unseen: replace(SEEN, unseen=OUTCOMES_GONE),
    what_is_missed_must_have_an_outcome_where_that_would_be_seen: ONE_GONE,
    what_a_cancel_applied_to_must_have_an_outcome_where_that_would_be_seen: ONE_GONE,
    what_recalls_name_may_have_been_deleted: SEEN,
    a_recall_without_the_right_proof_misses: SEEN,
    a_recall_with_a_right_proof_counts: SEEN,
    a_record_is_not_taken_back_in_mid_hop_by_a_wrong_proof: SEEN,
    a_recall_ends_its_record_where_only_what_is_settled_counts: replace(SEEN, settled_only=True),
}
