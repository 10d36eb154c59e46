"""Stories of ends that are late, unseen, excused or out of order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from spark_jobs.audit_scope import AuditScope, LatenessLimits, OverdueRule, OverdueRules, Unseen
from tests.spark.verdicts.topics_told import NEXT_OFFSET, OUTCOMES_GONE, SEEN, T_MS, Story, Topics


def deleted_outcome_is_not_held_against_the_record_that_goes_on_from_it(t: Topics) -> None:
    later: dict[str, Any] = {"wanted_ms": 150_000, "due_ms": 150_000}
    gone = t.record("unverifiable", "outcomes are gone", **later, fires_ms=44_000)
    t.record("unverifiable", "outcome is gone", **later, hop_from=gone, timestamp_ms=44_500)
    lost = t.record("missing", **later, fires_ms=50_000)
    t.record("contradicted", "which has no outcome", **later, hop_from=lost, timestamp_ms=50_500)


def outcomes_that_were_deleted_explain_ends_alone_of_which_nothing_else_would_be_left(
    t: Topics,
) -> None:
    """All outcomes are deleted, and dead letters up to 45 s."""
    lost = ("missing", "no topic shows how")
    t.record(*lost, timestamp_ms=45_001)
    t.record("unverifiable", "outcomes are gone", timestamp_ms=45_000)
    t.record(*lost, kind="refused", code="id-bad", timestamp_ms=45_001)
    t.record("unverifiable", "outcomes are gone", kind="refused", code="id-bad")
    t.record("unverifiable", "outcomes are gone", target="may-be-dropped")
    t.record(*lost, target="may-be-dropped", timestamp_ms=45_001, wanted_ms=200_001)
    t.record("unverifiable", "outcomes are gone", kind="cancel", ident=b"x")
    t.record("unverifiable", "outcomes are gone", ident=b"y", due_ms=190_000)
    t.delivered(t.record("delivered", ident=b"y"))
    t.record("unverifiable", "outcomes are gone", kind="prepare", ident=b"z")
    t.record("unverifiable", "outcomes are gone", kind="rollback", ident=b"z")
    t.letter(t.record("unverifiable", "it has a dead letter", kind="refused"), "id-bad")


def commit_whose_outcome_was_deleted_is_not_taken_for_what_went_on(t: Topics) -> None:
    """A requeued half message has a successor with the offset of its commit."""
    half = t.record("requeued", kind="prepare", ident=b"h")
    t.outcome(half, "requeued")
    commit = t.record("unverifiable", "outcomes are gone", kind="commit", ident=b"h")
    first: dict[str, Any] = {"hop_from": commit, "first_origin": t.origin(half), "ident": b"h"}
    t.delivered(
        t.record("delivered", **first),
        stamps="timer-origin,timer-due,timer-first-origin",
        first_origin=t.origin(half),
    )


def only_the_partition_where_a_record_would_lie_explains_that_it_is_not_there(t: Topics) -> None:
    t.record("missing", "no topic shows how", target="half-gone", target_partition=0)
    t.record("unverifiable", "1 is gone", target="half-gone", target_partition=1)
    t.record("missing", "no topic shows how", target="half-gone", key_number=6)
    t.record("unverifiable", "1 is gone", target="half-gone", key_number=7)
    t.record("unverifiable", "1 is gone", target="half-gone", key_number=None)
    t.record("missing", "no", target="half-gone", key_number=7, wanted_ms=60_001)


def what_came_too_late_or_not_at_all_is_late_or_overdue_where_that_is_asked(t: Topics) -> None:
    """The limit is 2 s, and a minute for `slow-*`. It is 200 s, and the proxy stood at 100 s."""
    t.delivered(t.record("delivered"), at_ms=52_000)
    t.delivered(t.record("late", "arrived 2001 ms late, 2000 ms are allowed"), at_ms=52_001)
    t.delivered(t.record("delivered", due_ms=30_000), due_ms=30_000, at_ms=42_000)
    t.delivered(t.record("late", due_ms=30_000), due_ms=30_000, at_ms=42_001)
    slow: dict[str, Any] = {"target": "slow-1"}
    t.delivered(t.record("delivered", **slow), at_ms=110_000, topic="slow-1")
    t.record("overdue", "due for 99000 ms", due_ms=T_MS + 1_000)
    t.record("overdue", due_ms=T_MS + 1_000, ident=b"i")
    t.record("pending", due_ms=199_000)
    t.record("pending", due_ms=140_000, **slow)
    t.record("overdue", due_ms=139_999, **slow)
    t.record("overdue", offset=NEXT_OFFSET)
    t.record("overdue", kind="cancel", ident=b"k", offset=NEXT_OFFSET + 1, timestamp_ms=197_999)
    t.record("pending", kind="cancel", ident=b"l", offset=NEXT_OFFSET + 2, timestamp_ms=198_000)
    t.record("pending", offset=NEXT_OFFSET + 3, due_ms=199_000)
    t.delivered(t.record("delivered", kind="prepare", ident=b"h"), at_ms=97_000)
    t.outcome(t.record("applied", kind="commit", ident=b"h", timestamp_ms=95_000), "applied")
    t.delivered(t.record("late", kind="prepare", ident=b"j"), at_ms=97_001)
    t.outcome(t.record("applied", kind="commit", ident=b"j", timestamp_ms=95_000), "applied")
    t.record("pending", kind="prepare", ident=b"u", expires_ms=199_000)
    t.record("overdue", kind="prepare", ident=b"v", expires_ms=197_999)
    held = t.record("requeued")
    t.outcome(held, "requeued")
    again: dict[str, Any] = {"hop_from": held, "first_origin": t.origin(held)}
    later = t.record("late", "arrived 10000 ms", timestamp_ms=51_000, wanted_ms=60_000, **again)
    stamps = "timer-origin,timer-due,timer-first-origin"
    t.delivered(later, at_ms=60_000, stamps=stamps, first_origin=t.origin(held))


def what_was_read_while_a_record_waited_must_have_ended_it(t: Topics) -> None:
    """The read times decide, with a tolerance of one transaction."""

    def named(expected: str, detail: str = "", ident: bytes = b"a", **other: Any) -> int:
        return t.record(expected, detail, ident=ident, **other)

    cancel: dict[str, Any] = {"kind": "cancel", "timestamp_ms": 45_000}
    t.delivered(named("delivered"), at_ms=60_000)
    t.outcome(named("missed", **cancel), "missed", at_ms=50_000)
    t.delivered(named("delivered", ident=b"b"), at_ms=60_001)
    ignored = ("contradicted", "was delivered 10001 ms later")
    t.outcome(named(*ignored, ident=b"b", **cancel), "missed", at_ms=50_000)
    t.delivered(named("delivered", ident=b"c"))
    undue = ("contradicted", "was delivered 5005 ms later")
    t.outcome(named(*undue, ident=b"c", **cancel), "missed", at_ms=44_999)
    newer: dict[str, Any] = {"timestamp_ms": 45_000, "due_ms": 150_000}
    t.delivered(named("delivered", ident=b"d"), at_ms=60_000)
    named("pending", ident=b"d", **newer)
    late = ("contradicted", "delivered 10002 ms after offset 19")
    t.delivered(named(*late, ident=b"e"), at_ms=60_002)
    named("pending", ident=b"e", **newer)
    t.delivered(named("delivered", ident=b"f", timestamp_ms=44_000), at_ms=50_000)
    t.delivered(
        t.record("delivered", target="mail", due_ms=45_000),
        at_ms=50_000,
        topic="mail",
        due_ms=45_000,
    )
    t.delivered(named("contradicted", "after offset 23", ident=b"g"), at_ms=70_000)
    named("pending", ident=b"g", **newer)
    t.record("pending", offset=5_000 - 4_100, due_ms=150_000)
    t.delivered(t.record("delivered", offset=950), at_ms=50_001)


def what_names_no_record_does_not_tell_how_far_was_read(t: Topics) -> None:
    t.delivered(t.record("delivered", ident=b"s"), at_ms=60_000)
    t.record("pending", ident=b"s", timestamp_ms=45_000, due_ms=150_000)
    t.expected[900] = ("orphaned", "")
    t.delivered(900, at_ms=45_000)


def reasons_that_the_topics_speak_against_are_not_believed(t: Topics) -> None:
    """Since 45 s overdue records for `old*` are dropped. For `buried` they are dead letters."""

    def letter(
        expected: str, detail: str, code: str, told: str = "", at_ms: int = 60_000, **other: Any
    ) -> None:
        offset = t.record(expected, detail, **other)
        t.outcome(offset, "dead-lettered", detail=f"{code}: {told}", at_ms=at_ms)
        t.letter(offset, code, detail=told, at_ms=at_ms, size_bytes=10)

    letter("dead_lettered", "", "body-gone")
    letter("contradicted", "the ingress still has the record", "body-gone", at_ms=59_999)
    letter("dead_lettered", "", "body-gone", at_ms=59_999, known_verdict="pending")
    letter("contradicted", "after 1 of 16 attempts", "target-unknown")
    letter("contradicted", "after 15 of 16 attempts", "not-authorised", hop_attempt=14)
    letter("dead_lettered", "", "partition-unavailable", hop_attempt=15)

    def overdue(pattern: str) -> str:
        return f"10000 ms overdue; {pattern} allows 5000 (release.overdue)"

    def dropped(
        expected: str, detail: str, pattern: str, at_ms: int = 60_000, **other: Any
    ) -> None:
        offset = t.record(expected, detail, **other)
        t.outcome(offset, "expired", detail=overdue(pattern), at_ms=at_ms)

    dropped("expired", "", "old*", target="old-1")
    dropped("contradicted", "10000 ms before its due", "old*", target="old-1", due_ms=70_000)
    dropped("contradicted", "no such rule", "old*", target="orders")
    dropped("contradicted", "no such rule", "ord*", target="orders")
    dropped("contradicted", "no such rule", "buried", target="buried")
    dropped("expired", "", "ord*", target="orders", at_ms=44_999, due_ms=40_000)
    letter("dead_lettered", "", "overdue", overdue("buried"), target="buried")
    letter("contradicted", "no such rule", "overdue", overdue("old*"), target="old-1")
    unseen = t.record("pending", "was not yet written", target="buried", due_ms=T_MS + 1)
    t.outcome(unseen, "dead-lettered", detail=f"overdue: {overdue('buried')}", at_ms=120_000)
    sized: dict[str, Any] = {"target": "big", "size_bytes": 90}
    letter("contradicted", "with 100 bytes, but big took 100", "too-large", at_ms=61_500, **sized)
    letter("dead_lettered", "", "too-large", at_ms=62_500, **sized)
    letter("dead_lettered", "", "too-large", at_ms=61_500, target="big", size_bytes=91)
    for at_ms in (60_000, 62_000):
        t.delivered(t.record("delivered", target="big"), topic="big", size_bytes=100, at_ms=at_ms)


def what_a_cancel_missed_did_not_wait_until_it_was_buried(t: Topics) -> None:
    cancel: dict[str, Any] = {"kind": "cancel", "timestamp_ms": 45_000}

    def buried(expected: str, ident: bytes, at_ms: int) -> None:
        offset = t.record(expected, ident=ident)
        t.outcome(offset, "dead-lettered", at_ms=at_ms)
        t.letter(offset, "publish-failed", at_ms=at_ms)

    buried("dead_lettered", b"k", 60_001)
    ignored = "at offset 10, ended as dead-lettered 10001 ms later"
    t.outcome(t.record("contradicted", ignored, ident=b"k", **cancel), "missed", at_ms=50_000)
    buried("dead_lettered", b"l", 60_000)
    t.outcome(t.record("missed", ident=b"l", **cancel), "missed", at_ms=50_000)
    for code, expected in (("defect", "dead_lettered"), ("publish-failed", "contradicted")):
        control = t.record(expected, ident=b"m", **cancel)
        t.outcome(control, "dead-lettered", due_ms=None)
        t.letter(control, code)


def what_was_replaced_is_no_dead_letter_later(t: Topics) -> None:
    """Defects are an exception: the proxy may have met them while reading."""
    for ident, code, at_ms, *expected in (
        (b"q", "publish-failed", 60_005, "contradicted", "it became a dead letter 10001 ms after"),
        (b"r", "publish-failed", 60_004, "dead_lettered"),
        (b"s", "defect", 60_005, "dead_lettered"),
    ):
        offset = t.record(*expected, ident=ident)
        t.outcome(offset, "dead-lettered", at_ms=at_ms)
        t.letter(offset, code, at_ms=at_ms)
        t.delivered(t.record("delivered", ident=ident, timestamp_ms=45_000))


def what_goes_on_has_failed_once_more_at_the_most(t: Topics) -> None:
    def chain(expected: str, detail: str, before: int | None, after: int | None) -> None:
        held = t.record(expected, detail, due_ms=150_000, hop_attempt=before)
        t.outcome(held, "requeued")
        again: dict[str, Any] = {"hop_from": held, "first_origin": t.origin(held)}
        t.record("pending", due_ms=150_000, hop_attempt=after, **again)

    chain("requeued", "", None, None)
    chain("requeued", "", None, 1)
    chain("requeued", "", 3, 4)
    chain("altered", "a different attempt", None, 15)
    chain("altered", "a different attempt", 3, 2)


def half_messages_do_not_expire_before_their_last_check(t: Topics) -> None:
    def expired(expected: str, detail: str, ident: bytes, at_ms: int) -> None:
        half = t.record(expected, detail, kind="prepare", ident=ident, expires_ms=60_000)
        told = t.record("applied", kind="expire", ident=ident, hop_from=half, timestamp_ms=at_ms)
        t.outcome(told, "applied", at_ms=at_ms)
        t.outcome(half, "expired", at_ms=at_ms)
        t.letter(half, "transaction-expired", at_ms=at_ms)

    expired("expired", "", b"q", 55_000)
    expired(
        "contradicted",
        "it expired 5001 ms too early after its last check",
        b"r",
        54_999,
    )


def what_is_seen_before_its_due_came_early_whatever_time_it_claims(t: Topics) -> None:
    t.delivered(
        t.record("early", "5001 ms before its due", due_ms=105_001), due_ms=105_001, at_ms=105_001
    )
    t.delivered(t.record("delivered", due_ms=105_000), due_ms=105_000, at_ms=105_000)


def outcomes_say_the_id_and_the_due_of_their_record(t: Topics) -> None:
    def cancelled(expected: str, detail: str = "", **told: Any) -> None:
        t.outcome(t.record(expected, detail, ident=b"a", due_ms=150_000), "cancelled", **told)
        t.outcome(t.record("applied", kind="cancel", ident=b"a"), "applied")

    cancelled("cancelled", due_ms=None)
    cancelled("altered", "cancelled with a different due", due_ms=150_001)
    cancelled("altered", "cancelled with a different id", ident=None)
    cancelled("altered", "cancelled with a different due and id", due_ms=7, ident=b"c")
    t.outcome(t.record("altered", "different id", kind="cancel", ident=b"x"), "missed", ident=None)
    t.outcome(t.record("altered", "different id", kind="cancel", ident=b"x"), "missed", ident=b"y")
    t.outcome(t.record("missed", kind="cancel", ident=b"\xff"), "missed", ident=b"\\xff")
    lost = t.record("altered", "different due", wanted_ms=90_000, due_ms=90_000, fires_ms=50_000)
    t.outcome(lost, "rolled", due_ms=None)


def records_with_one_due_come_in_the_order_in_which_they_were_written(t: Topics) -> None:
    for at_offset in (20, 21, 30):
        t.delivered(t.record("delivered"), at_offset=at_offset)
    t.delivered(t.record("contradicted", "before offset 12"), at_offset=29)
    t.delivered(t.record("delivered"), at_offset=31)
    t.delivered(t.record("delivered", target_partition=2), at_offset=2, at_partition=2)
    t.delivered(t.record("delivered", due_ms=49_000), due_ms=49_000, at_offset=3)
    t.delivered(t.record("delivered", kind="prepare", ident=b"h"), at_offset=1)
    t.outcome(t.record("applied", kind="commit", ident=b"h"), "applied")


def half_messages_are_asked_about_once_and_in_time_and_shown_as_they_are(t: Topics) -> None:
    """The first question is at 50 s, then every 10 s, three times. The whole ingress was read."""
    t.read_from = 0

    def half(expected: str, ident: bytes, detail: str = "") -> None:
        checks = {"topic": "checks", "first_ms": 50_000, "interval_ms": 10_000, "most": 3}
        t.record(expected, detail, kind="prepare", ident=ident, checks=checks, expires_ms=T_MS + 1)

    half("pending", b"c1")
    t.check_back(b"c1", 1, 50_000)
    t.check_back(b"c1", 3, 90_000)
    half("contradicted", b"c2", "check 2 came 1 ms before its time")
    t.check_back(b"c2", 2, 59_999)
    half("contradicted", b"c3", "check 4 came, but the limit is 3")
    t.check_back(b"c3", 4, 99_000)
    half("contradicted", b"c4", "check 1 has a different value, stamps")
    t.check_back(b"c4", 1, 50_000, value_hash=9, stamps="timer-id")
    half("contradicted", b"c5", "check 1 came 2 times")
    t.check_back(b"c5", 1, 50_000)
    t.check_back(b"c5", 1, 50_001)
    t.check_back(b"nobody", 1, 50_001)


STORIES: dict[Story, AuditScope] = {
    what_a_cancel_missed_did_not_wait_until_it_was_buried: SEEN,
    what_was_replaced_is_no_dead_letter_later: SEEN,
    what_names_no_record_does_not_tell_how_far_was_read: SEEN,
    what_goes_on_has_failed_once_more_at_the_most: SEEN,
    half_messages_do_not_expire_before_their_last_check: SEEN,
    half_messages_are_asked_about_once_and_in_time_and_shown_as_they_are: replace(
        SEEN, at_ms=SEEN.at_ms + 1
    ),
    deleted_outcome_is_not_held_against_the_record_that_goes_on_from_it: replace(
        SEEN, unseen=OUTCOMES_GONE
    ),
    commit_whose_outcome_was_deleted_is_not_taken_for_what_went_on: replace(
        SEEN, unseen=OUTCOMES_GONE
    ),
    outcomes_that_were_deleted_explain_ends_alone_of_which_nothing_else_would_be_left: replace(
        SEEN,
        unseen={**SEEN.unseen, ("outcomes", 0): Unseen(200_000, "outcomes are gone")},
        overdue_rules=OverdueRules(0, (OverdueRule("may-be-*", 1_000, "drop"),)),
    ),
    only_the_partition_where_a_record_would_lie_explains_that_it_is_not_there: replace(
        SEEN,
        partition_counts={"half-gone": 2},
        unseen={("half-gone", 1): Unseen(60_000, "1 is gone")},
    ),
    what_came_too_late_or_not_at_all_is_late_or_overdue_where_that_is_asked: replace(
        SEEN, limits=LatenessLimits(2_000, (("slow-*", 60_000),))
    ),
    what_was_read_while_a_record_waited_must_have_ended_it: SEEN,
    outcomes_say_the_id_and_the_due_of_their_record: SEEN,
    records_with_one_due_come_in_the_order_in_which_they_were_written: SEEN,
    reasons_that_the_topics_speak_against_are_not_believed: replace(
        SEEN,
        overdue_rules=OverdueRules(
            45_000,
            (OverdueRule("old*", 5_000, "drop"), OverdueRule("buried", 5_000, "dead-letter")),
        ),
        reading_from_ms=60_000,
        least_attempts=16,
    ),
    what_is_seen_before_its_due_came_early_whatever_time_it_claims: replace(SEEN, seen_ms=100_000),
}
