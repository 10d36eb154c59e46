"""Verdicts on small hand-made histories: each kind of record, end and violation."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from pyspark.sql import SparkSession

from spark_jobs.audit_scope import AuditScope
from spark_jobs.verdicts import evaluation
from spark_jobs.verdicts.rules import ruling
from tests.spark.verdicts import (
    buried_records,
    doubtful_ends,
    moved_records,
    purged_records,
    recalled_records,
    unsettled_ends,
)
from tests.spark.verdicts.topics_told import (
    NEXT_OFFSET,
    SEEN,
    T_MS,
    Found,
    Story,
    Topics,
    judged,
)


def plain_records_are_delivered_once_in_time_and_unchanged(t: Topics) -> None:
    t.delivered(t.record("delivered"))
    t.record("missing", "no topic shows how")
    t.record("pending", due_ms=T_MS + 1)
    t.record("pending", offset=NEXT_OFFSET)
    t.record("pending", due_ms=T_MS, offset=NEXT_OFFSET + 1)
    t.delivered(t.record("delivered", due_ms=150_000), due_ms=150_000, at_ms=150_001)
    t.record("unverifiable", "old is gone", target="old")
    twice = t.record("duplicated", "2 times")
    t.delivered(twice)
    t.delivered(twice, at_offset=6)
    both = t.record("contradicted", "outcome is cancelled")
    t.delivered(both)
    t.outcome(both, "cancelled")
    t.delivered(t.record("early", "1 ms before"), at_ms=49_999)
    t.delivered(t.record("altered", "different key"), key_hash=7)
    t.delivered(t.record("altered", "different value"), value_hash=7)
    t.delivered(t.record("altered", "different headers"), headers_hash=7)
    t.delivered(t.record("altered", "different partition"), at_partition=2)
    t.delivered(t.record("altered", "different topic"), topic="mail")
    t.delivered(t.record("altered", "different timer-due"), due_ms=50_001)
    t.delivered(t.record("altered", "different stamps"), stamps="timer-origin,timer-due,timer-id")
    t.delivered(t.record("delivered", target_partition=2), at_partition=2)
    t.delivered(t.record("altered", "different partition", target_partition=2))
    t.delivered(t.record("delivered", key_number=None), at_partition=0)
    t.delivered(t.record("delivered", target="mail"), topic="mail", at_partition=9)
    t.record("unverifiable", "the settings that applied to it are unknown", kind=None)
    t.record("unverifiable", "has not read it", kind=None, offset=NEXT_OFFSET + 9)
    t.expected[500] = ("orphaned", "never held")
    t.delivered(500)
    t.expected[4] = ("unverifiable", "deleted")
    t.delivered(4)
    t.expected[2_000] = ("orphaned", "never held")
    t.delivered(2_000)
    t.expected[None] = ("orphaned", "names no record")
    t.delivered(None)


def dead_letters_are_of_records_that_deserve_it(t: Topics) -> None:
    def refused(expected: str, detail: str = "") -> int:
        return t.record(expected, detail, kind="refused", code="id-bad")

    for sound in (refused("dead_lettered"), t.record("dead_lettered")):
        cut = "; its dead letter has no value: letters takes no records of this size"
        t.outcome(sound, "dead-lettered", detail=cut)
        t.letter(sound, "id-bad" if sound == 10 else "too-large", value_hash=None)
    t.outcome(refused("contradicted", "it has no dead letter"), "dead-lettered")
    t.outcome(refused("unverifiable", "letters are gone"), "dead-lettered", at_ms=44_000)
    t.letter(refused("contradicted", "no outcome"), "id-bad")
    blurred = t.record("dead_lettered", kind="refused", code="header-unreadable", is_blurred=True)
    t.outcome(blurred, "dead-lettered")
    t.letter(blurred, "header-unreadable")
    unsure = ("unverifiable", "Java shows both alike")
    t.record(*unsure, kind="refused", code="header-unreadable", is_blurred=True)
    t.delivered(t.record(*unsure, kind="refused", is_blurred=True))
    other = refused("contradicted", "dead-lettered for hop-bad, but its fault is id-bad")
    t.outcome(other, "dead-lettered")
    t.letter(other, "hop-bad")
    sane = t.record("contradicted", "nothing is wrong with it")
    t.outcome(sane, "dead-lettered")
    t.letter(sane, "id-bad")
    changed = refused("altered")
    t.outcome(changed, "dead-lettered")
    t.letter(changed, "id-bad", letter_hash=5)
    t.delivered(refused("contradicted", "must be refused (id-bad)"))
    refused("missing")


def cancels_and_replacements_end_what_they_name(t: Topics) -> None:
    def named(expected: str, detail: str = "", ident: bytes = b"a", **other: Any) -> int:
        return t.record(expected, detail, ident=ident, **other)

    t.outcome(named("cancelled", due_ms=150_000), "cancelled")
    t.outcome(named("applied", kind="cancel"), "applied")
    t.outcome(named("missed", kind="cancel"), "missed")
    t.outcome(named("contradicted", "should say missed", kind="cancel"), "applied")
    t.outcome(named("replaced", ident=b"b"), "replaced", next_offset=15)
    t.outcome(named("contradicted", "is cancelled", ident=b"b"), "cancelled")
    t.delivered(named("delivered", ident=b"b"))
    t.delivered(named("delivered", ident=b"c"))
    t.outcome(named("missed", ident=b"c", kind="cancel"), "missed")
    t.delivered(named("delivered", ident=b"d"))
    t.outcome(named("contradicted", "should say missed", ident=b"d", kind="cancel"), "applied")
    named("missing", ident=b"e", due_ms=150_000)
    t.outcome(named("contradicted", "should say missed", ident=b"e", kind="cancel"), "applied")
    t.outcome(named("contradicted", "outcome is replaced", ident=b"f"), "replaced", next_offset=99)
    t.delivered(named("delivered", ident=b"f"))
    named("pending", ident=b"g", due_ms=150_000)
    t.record("missing", kind="cancel", ident=b"h")


def half_messages_end_as_they_were_decided(t: Topics) -> None:
    t.read_from = 0

    def half(ident: bytes, *kinds: tuple[str, str], **other: Any) -> int:
        first = 0
        for kind, expected in kinds:
            offset = t.record(
                expected.split(":")[0], *expected.split(":")[1:], kind=kind, ident=ident, **other
            )
            first = first or offset
            if kind != "prepare" and expected in {"applied", "missed"}:
                t.outcome(offset, expected)
        return first

    t.delivered(half(b"a", ("prepare", "delivered"), ("commit", "applied"), ("commit", "missed")))
    t.outcome(
        half(b"b", ("prepare", "rolled_back"), ("rollback", "applied"), ("commit", "missed")),
        "rolled-back",
    )
    t.delivered(half(b"c", ("prepare", "contradicted:nobody has committed")))
    half(b"d", ("prepare", "pending"), expires_ms=T_MS + 1)
    half(b"e", ("prepare", "missing"), expires_ms=T_MS)
    half(b"f", ("prepare", "missing"), ("commit", "applied"))
    half(b"g", ("prepare", "pending"), ("commit", "applied"), due_ms=T_MS + 1)
    t.delivered(half(b"h", ("prepare", "contradicted:nobody has"), ("rollback", "applied")))
    expired = t.record("expired", kind="prepare", ident=b"i")
    t.outcome(t.record("applied", kind="expire", ident=b"i", hop_from=expired), "applied")
    t.outcome(expired, "expired")
    t.letter(expired, "transaction-expired")
    t.outcome(half(b"j", ("prepare", "cancelled"), ("cancel", "applied")), "cancelled")
    t.outcome(t.record("missed", kind="commit", ident=b"k"), "missed")
    t.outcome(t.record("contradicted", "say missed", kind="commit", ident=b"k"), "applied")


def control_records_may_name_what_the_ingress_has_deleted(t: Topics) -> None:
    for number, kind in enumerate(("cancel", "commit", "rollback")):
        ident = b"%d" % number
        for said in ("applied", "missed"):
            t.outcome(t.record(said, kind=kind, ident=ident + said.encode()), said)
    t.delivered(t.record("delivered", ident=b"a"))
    t.outcome(t.record("contradicted", "say missed", kind="commit", ident=b"a"), "applied")
    rewritten = t.record("replaced", ident=b"r", hop_from=3, first_origin=t.origin(3))
    t.outcome(rewritten, "replaced", next_offset=4)


def what_fires_at_the_watermark_must_have_ended_up_to_the_cursor(t: Topics) -> None:
    t.cursor = 11
    t.record("missing", due_ms=T_MS)
    t.record("missing", kind="prepare", ident=b"a", expires_ms=T_MS)
    t.record("pending", due_ms=T_MS)
    t.record("pending", kind="prepare", ident=b"b", expires_ms=T_MS)
    t.record("missing", kind="prepare", ident=b"c", expires_ms=T_MS - 1)
    t.record("pending", kind="prepare", ident=b"d", expires_ms=T_MS - 1)
    t.record("pending", ident=b"d", offset=NEXT_OFFSET)


def records_that_went_on_are_followed_to_their_end(t: Topics) -> None:
    def successor(expected: str, hop_from: int, **other: Any) -> int:
        first = {"first_origin": t.origin(hop_from), "hop_from": hop_from}
        return t.record(expected, **{**first, **other})

    def rolled(expected: str = "rolled", detail: str = "", **other: Any) -> int:
        offset = t.record(
            expected, detail, wanted_ms=90_000, due_ms=90_000, fires_ms=50_000, **other
        )
        t.outcome(offset, "rolled")
        return offset

    longer = "timer-origin,timer-due,timer-first-origin"
    one = rolled()
    two = successor("delivered", one, due_ms=90_000)
    t.delivered(
        two,
        due_ms=90_000,
        at_ms=90_000,
        stamps=longer,
        first_origin=t.origin(one),
    )
    rolled("missing", "it has no successor")
    successor("pending", rolled("altered", "different due, value"), due_ms=150_000, value_hash=9)
    lost = rolled("altered", "different due")
    successor("missing", lost, due_ms=80_000)
    many = rolled("duplicated", "it has 2 successors")
    successor("pending", many, due_ms=150_000)
    successor("pending", many, due_ms=150_000)
    delivered = t.record("delivered")
    t.delivered(delivered)
    t.delivered(successor("contradicted", delivered), stamps=longer)
    t.outcome(t.record("contradicted", "outcome is rolled"), "rolled")
    again = t.record("requeued")
    t.outcome(again, "requeued")
    t.delivered(
        successor("early", again, wanted_ms=60_000, fires_ms=60_000),
        stamps=longer,
        first_origin=t.origin(again),
    )
    met = rolled(ident=b"x")
    t.outcome(t.record("applied", kind="cancel", ident=b"x"), "applied")
    t.outcome(successor("cancelled", met, due_ms=90_000, ident=b"x"), "cancelled")
    unmet = rolled(ident=b"y")
    t.outcome(t.record("applied", kind="cancel", ident=b"y"), "applied")
    t.delivered(successor("contradicted", unmet, due_ms=90_000, ident=b"y"), stamps=longer)


def what_need_not_have_ended_is_pending_where_only_what_is_settled_counts(t: Topics) -> None:
    t.delivered(t.record("delivered"))
    t.delivered(t.record("pending", due_ms=T_MS + 1), due_ms=T_MS + 1)
    t.outcome(t.record("pending", ident=b"a", due_ms=150_000), "cancelled")
    t.outcome(t.record("pending", due_ms=150_000, fires_ms=T_MS + 1), "rolled")
    t.record("missing")


Evaluations = dict[Story, tuple[Topics, Found]]
STORIES: dict[Story, AuditScope] = {
    plain_records_are_delivered_once_in_time_and_unchanged: SEEN,
    dead_letters_are_of_records_that_deserve_it: SEEN,
    cancels_and_replacements_end_what_they_name: SEEN,
    half_messages_end_as_they_were_decided: SEEN,
    control_records_may_name_what_the_ingress_has_deleted: SEEN,
    what_fires_at_the_watermark_must_have_ended_up_to_the_cursor: SEEN,
    records_that_went_on_are_followed_to_their_end: SEEN,
    what_need_not_have_ended_is_pending_where_only_what_is_settled_counts: replace(
        SEEN, settled_only=True
    ),
    **doubtful_ends.STORIES,
    **unsettled_ends.STORIES,
    **recalled_records.STORIES,
    **purged_records.STORIES,
    **moved_records.STORIES,
    **buried_records.STORIES,
}


@pytest.fixture(scope="module")
def evaluations(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Evaluations:
    folder = tmp_path_factory.mktemp("evaluation")
    told = {story: Topics(number) for number, story in enumerate(STORIES)}
    for story, topics in told.items():
        story(topics)
    groups: list[tuple[AuditScope, list[Topics]]] = []
    for story, scope in STORIES.items():
        if not groups or groups[-1][0] != scope:
            groups.append((scope, []))
        groups[-1][1].append(told[story])
    with patch.object(evaluation, "RULING", numbered_ruling()):
        found = judged(spark, folder, groups)
    return {story: (topics, found) for story, topics in told.items()}


def numbered_ruling() -> str:
    rules = enumerate(evaluation.RULES)
    return ruling(rule._replace(detail=f"{rule.detail} [{number}]") for number, rule in rules)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_each_record_of_a_story_gets_the_verdict_that_it_tells(
    story: Story, evaluations: Evaluations
) -> None:
    topics, all_found = evaluations[story]
    found = {offset: said for (at, offset), said in all_found.items() if topics.holds(at, offset)}
    wrong = {
        offset: (found.get(offset), expected)
        for offset, expected in topics.expected.items()
        if found.get(offset, ("none", ""))[0] != expected[0] or expected[1] not in found[offset][1]
    }
    assert not wrong
    assert found.keys() == topics.expected.keys()


def test_each_rule_decides_about_some_record_of_the_stories(evaluations: Evaluations) -> None:
    """A story fails if a rule is removed or reordered."""
    said = (detail for _, found in evaluations.values() for _, detail in found.values())
    deciding = {int(number) for detail in said for number in re.findall(r" \[(\d+)\]$", detail)}
    idle = {n: rule for n, rule in enumerate(evaluation.RULES) if n not in deciding}
    assert not idle
