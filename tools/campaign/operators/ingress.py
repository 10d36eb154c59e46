"""Faults in the ingress and in the committed positions."""

from __future__ import annotations

from tools.campaign.contents import DELIVERED, Ended
from tools.campaign.operators.operator import (
    Operators,
    Planted,
    Planting,
    is_plain,
    named,
)
from tools.campaign.scene import LAST, LIMIT_MS, MOMENTS_MS, POLICY

INGRESS = Operators()
add = INGRESS.add
NO_VERDICT = "this mode has no verdict `overdue`"


@add("A record is delivered, although its producer aborted it", is_plain)
def aborted_and_delivered(t: Planting, one: Ended) -> Planted:
    t.contents.remove(one.record)
    return named((one.origin, "orphaned"))


@add(
    "A record has an outcome, although its producer aborted it",
    lambda _t, one: (
        bool(one.outcomes)
        and one.ident is None
        and one.successor is None
        and one.hop_from is None
        and one.kind != "recall"
    ),
)
def aborted_with_outcome(t: Planting, one: Ended) -> Planted:
    t.contents.remove(one.record)
    sides = [*t.recalls_of(one), *t.purged_by(one)]
    return named((one.origin, "orphaned"), sides=sides)


@add("The ingress holds another value than was delivered", is_plain)
def ingress_value_changed(t: Planting, one: Ended) -> Planted:
    one.record.value = (one.record.value or b"") + b"~"
    return named((one.origin, "altered"))


@add("A header's name has U+FFFD, or bytes that Java shows like that", is_plain)
def header_blurred(t: Planting, one: Ended) -> Planted:
    """Insert a header whose name is U+FFFD. Java also decodes invalid bytes to U+FFFD. So the audit
    cannot compare the record with its delivery, and the record is unverifiable."""
    for held in (one.record, one.delivery):
        held.headers.insert(0, ("\ufffd", b"x"))
    return named((one.origin, "unverifiable"))


def _by_its_time(t: Planting, one: Ended) -> bool:
    """Return whether the record is delivered at its requested time. A retry after the last attempt
    goes to the dead-letter topic at once instead."""
    return is_plain(t, one) and not one.delivery.topic.startswith(POLICY.dlq_prefix)


@add("The ingress asks for a time after the delivery", _by_its_time)
def ingress_due_changed(t: Planting, one: Ended) -> Planted:
    due = b"%d" % (one.delivery.timestamp_ms + 1)
    one.record.headers.append(("timer-deliver-at", due))
    one.delivery.set_header("timer-due", due)
    return named((one.origin, "early"))


def _is_overdue(t: Planting, one: Ended) -> bool:
    """Return whether the record would be overdue at the last moment, if it were still pending."""
    return is_plain(t, one) and one.first_ms + LIMIT_MS < MOMENTS_MS[LAST]


@add("The watermark stays before the due of a record", _is_overdue, follow=NO_VERDICT)
def watermark_stands_still(t: Planting, one: Ended) -> Planted:
    t.contents.remove(one.delivery)
    t.contents.move_positions(one.partition, watermark_ms=one.due_ms - 1)
    return named((one.origin, "overdue"))


def _is_last_read(t: Planting, one: Ended) -> bool:
    next_offset = t.contents.moments[LAST].committed[one.partition].next_offset or 0
    return _is_overdue(t, one) and one.record.offset == next_offset - 1


@add("The proxy stops reading before a record", _is_last_read, follow=NO_VERDICT)
def reading_stands_still(t: Planting, one: Ended) -> Planted:
    t.contents.remove(one.delivery)
    t.contents.move_positions(one.partition, next_offset=one.record.offset)
    return named((one.origin, "overdue"))


def _is_committed_half(_t: Planting, one: Ended) -> bool:
    return one.kind == "prepare" and one.end == DELIVERED


def _decision(t: Planting, one: Ended) -> Ended | None:
    """Return the half message's commit. Return None if there are several commits, because one of
    the others would decide."""
    commits = [
        other
        for other in t.records
        if other.partition == one.partition
        and other.record.offset > one.record.offset
        and other.ident == one.ident
        and other.kind == "commit"
    ]
    return commits[0] if len(commits) == 1 else None


@add(
    "A half message was delivered, although its commit was aborted",
    lambda t, one: _is_committed_half(t, one) and _decision(t, one) is not None,
)
def commit_aborted(t: Planting, one: Ended) -> Planted:
    """Abort the commit. Then a later decision should have applied, but its outcome says missed."""
    commit = _decision(t, one)
    assert commit
    t.contents.remove(commit.record, commit.outcome)
    sides = [
        (o.origin, "contradicted")
        for o in t.records
        if o.partition == one.partition and o.ident == one.ident and o.origin != one.origin
    ]
    gone = [(commit.origin, "none")]
    return named((one.origin, "contradicted"), sides=[*sides, *gone])
