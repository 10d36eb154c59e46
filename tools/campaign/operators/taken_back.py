"""Faults in cancels, recalls, replacements and purges."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase

from tools.campaign.contents import Ended, Held
from tools.campaign.operators.operator import (
    Operators,
    Planted,
    Planting,
    both,
    is_alone,
    is_in_our_words,
    named,
)
from tools.campaign.scene import OWN, POLICY

TAKEN_BACK = Operators()
add = TAKEN_BACK.add
SAID_OF_IT = "delivered missing contradicted"
"""Allowed verdicts of a record delivered after its cancel. `contradicted` fits if a later purge
applies to the record, too."""
READ_TO_DUE_MS = 6_000
TRANSACTION_MS = 10_000
CLOCK_MS = 5_000


def _is_ripe(t: Planting, one: Ended) -> bool:
    return one.due_ms > 0 and one.due_ms + TRANSACTION_MS < t.watermark_ms(one.partition)


def _cancel_that_applied(t: Planting, one: Ended) -> Ended | None:
    recall = t.recall_of(one)
    if recall is not None and recall.end == "applied":
        return recall
    found = t.next_with_id(one)
    is_cancel = found is not None and found.kind == "cancel" and found.end == "applied"
    return found if is_cancel else None


def _was_cancelled(t: Planting, one: Ended) -> bool:
    is_first = one.hop_from is None and one.kind == "record"
    return one.end == "cancelled" and is_first and _cancel_that_applied(t, one) is not None


@add(
    "A cancel or recall applied, but the record is delivered",
    both(_was_cancelled, is_alone, _is_ripe),
)
def cancelled_and_delivered_instead(t: Planting, one: Ended) -> Planted:
    cancel = _cancel_that_applied(t, one)
    assert cancel
    t.contents.remove(one.outcome)
    at_ms = t.deliver(one).timestamp_ms
    missed = _missed_before(t, one, at_ms, one.due_ms)
    sides = [(one.origin, SAID_OF_IT), *t.recalls_of(one), *missed]
    return named((cancel.origin, "contradicted"), sides=sides)


def _waited_long(t: Planting, one: Ended) -> bool:
    return one.due_ms > one.outcome.timestamp_ms + READ_TO_DUE_MS


@add(
    "A cancel or recall is ignored: it says missed, and the record is delivered later",
    both(_was_cancelled, is_alone, _is_ripe, _waited_long),
)
def cancel_ignored(t: Planting, one: Ended) -> Planted:
    cancel = _cancel_that_applied(t, one)
    assert cancel
    t.contents.remove(one.outcome)
    cancel.outcome.say(outcome="missed")
    at_ms = t.deliver(one).timestamp_ms
    missed = _missed_before(t, one, at_ms, one.due_ms)
    sides = [(one.origin, SAID_OF_IT), *t.recalls_of(one), *missed]
    return named((cancel.origin, "contradicted"), sides=sides)


@add(
    "A cancel or recall is ignored: it says missed, and the record is a dead letter later",
    both(_was_cancelled, is_in_our_words, _is_ripe, _waited_long),
)
def cancel_ignored_and_buried(t: Planting, one: Ended) -> Planted:
    cancel = _cancel_that_applied(t, one)
    assert cancel
    t.contents.remove(one.outcome)
    cancel.outcome.say(outcome="missed")
    at_ms = max(one.due_ms, cancel.outcome.timestamp_ms + TRANSACTION_MS + 1)
    t.bury(one, "publish-failed", "made up", at_ms)
    said = "dead_lettered missing"
    taken_back = [*_purged_at(t, one), *_replaced_at(t, one, cancel)]
    if any(_is_long_before(ms, at_ms, one.due_ms) for ms in taken_back):
        said += " contradicted"
    sides = [(one.origin, said), *_missed_before(t, one, at_ms)]
    return named((cancel.origin, "contradicted"), sides=sides)


def _is_long_before(told_ms: int, ended_ms: int, due_ms: int) -> bool:
    """Return whether the record ended, or was due, long after `told_ms`. Slow transactions and
    wrong clocks do not explain the time between."""
    return ended_ms > told_ms + TRANSACTION_MS or due_ms > told_ms + CLOCK_MS


def _missed_before(
    t: Planting, one: Ended, ended_ms: int, due_ms: int = 0
) -> list[tuple[str, str]]:
    """Return side verdicts (`Planted.sides`) of cancels, recalls and moves whose outcome is
    `missed`, although they would have found the record pending. A cancel applies to the last record
    with its id. `due_ms` is the due of a delivered record."""
    renewed = [
        other.record.offset
        for other in t.records
        if other.partition == one.partition
        and other.record.offset > one.record.offset
        and other.ident == one.ident
        and other.kind in {"record", "prepare"}
    ]
    missed = {
        other.origin
        for other in t.records
        if other.end == "missed"
        and other.kind in {"cancel", "recall", "record"}
        and not (other.kind == "cancel" and other.record.offset > min(renewed, default=2**62))
        and _is_long_before(other.outcome.timestamp_ms, ended_ms, due_ms)
    }
    return [(origin, said) for origin, said in t.later_of(one) if origin in missed]


def _replaced_at(t: Planting, one: Ended, cancel: Ended) -> list[int]:
    """Return when the proxy read a newer record that would have replaced the record. Return nothing
    for a newer record after a cancel, because the cancel had already ended the record."""
    newer = t.next_with_id(one)
    if one.ident is None or newer is None or "cancel" in {newer.kind, cancel.kind}:
        return []
    read_ms = t.read_ms(newer)
    return [] if read_ms is None else [read_ms]


def _purged_at(t: Planting, one: Ended) -> list[int]:
    return [
        other.outcome.timestamp_ms
        for other in t.records
        if other.kind == "purge"
        and other.end == "applied"
        and other.partition == one.partition
        and other.record.offset > one.record.offset
        and _means(other.record, one)
    ]


def _means(purge: Held, one: Ended) -> bool:
    group = one.record.text("timer-retry-group")
    target = one.record.text("timer-topic") or f"{POLICY.retry_prefix}{group}"
    first_ms, last_ms = purge.number("timer-purge-from"), purge.number("timer-purge-to")
    is_in_time = first_ms is None or first_ms <= one.due_ms
    is_in_time &= last_ms is None or one.due_ms <= last_ms
    return is_in_time and fnmatchcase(target, purge.text("timer-purge") or "")


def _waits_on(t: Planting, one: Ended) -> bool:
    """Return whether the record is not due yet. In a run whose proxy rolls records, the record must
    also have an id."""
    texts = t.contents.policies.values()
    is_rolled = any(json.loads(text)["roll_after_ms"] is not None for text in texts)
    is_far = one.due_ms > t.watermark_ms(one.partition)
    return is_far and not (is_rolled and one.ident is None)


@add(
    "A cancel or recall is ignored: it says missed, and the record is still pending",
    lambda t, one: _was_cancelled(t, one) and _waits_on(t, one),
)
def cancel_ignored_of_what_waits(t: Planting, one: Ended) -> Planted:
    """Ignore a cancel or recall: the record stays pending, and the control record says missed. The
    audit may call the record missing, because a cancel that named it must have ended it."""
    cancel = _cancel_that_applied(t, one)
    assert cancel
    t.contents.remove(one.outcome)
    cancel.outcome.say(outcome="missed")
    return named((cancel.origin, "contradicted"), sides=[(one.origin, "pending missing")])


def _was_replaced(t: Planting, one: Ended) -> bool:
    """Return whether other records prove that the newer record was read before the replaced record
    was due."""
    next_one = t.next_with_id(one)
    return (
        one.end == "replaced"
        and one.kind == "record"
        and one.hop_from is None
        and next_one is not None
        and next_one.kind == "record"
        and (read_ms := t.read_ms(next_one)) is not None
        and one.due_ms > read_ms + READ_TO_DUE_MS
    )


@add(
    "A replacement is ignored: both records are delivered",
    both(_was_replaced, is_alone, _is_ripe, _waited_long),
)
def replacement_ignored(t: Planting, one: Ended) -> Planted:
    t.contents.remove(one.outcome)
    t.deliver(one)
    return named((one.origin, "contradicted missing"))


@add(
    "A replacement is ignored: the replaced record is a dead letter when it is due",
    both(_was_replaced, is_in_our_words, _is_ripe, _waited_long),
)
def replacement_ignored_and_buried(t: Planting, one: Ended) -> Planted:
    t.contents.remove(one.outcome)
    t.bury(one, "publish-failed", "made up", one.due_ms + 3)
    return named((one.origin, "contradicted missing"), sides=t.later_of(one))


def _purge_of(t: Planting, one: Ended) -> Ended | None:
    purge = next((other for other in t.records if other.origin == one.purged_by), None)
    is_first = one.hop_from is None and one.kind == "record"
    return purge if is_first and purge is not None and purge.end == "applied" else None


def _waited_at_its_purge(t: Planting, one: Ended) -> bool:
    purge = _purge_of(t, one)
    return purge is not None and one.due_ms > purge.outcome.timestamp_ms + READ_TO_DUE_MS


@add(
    "A purge applied, but a purged record is delivered when it is due",
    both(_waited_at_its_purge, is_alone, _is_ripe),
)
def purged_and_delivered_instead(t: Planting, one: Ended) -> Planted:
    t.contents.remove(one.outcome)
    t.deliver(one)
    return named((one.origin, "contradicted"), sides=t.later_of(one))


@add(
    "A purge applied, but a purged record is a dead letter when it is due",
    both(_waited_at_its_purge, is_in_our_words, _is_ripe),
)
def purged_and_buried_instead(t: Planting, one: Ended) -> Planted:
    t.contents.remove(one.outcome)
    t.bury(one, "publish-failed", "made up", one.due_ms + 3)
    return named((one.origin, "contradicted"), sides=t.later_of(one))


@add("A purged record names another purge", lambda _t, one: one.purged_by is not None)
def purged_by_another(t: Planting, one: Ended) -> Planted:
    purges = [o.origin for o in t.records if o.kind == "purge" and o.origin != one.purged_by]
    other = t.draw.choice([*purges, f"{OWN.ingress}/{one.partition}/7777", one.origin])
    one.outcome.say(detail=f"purged by {other}")
    return named((one.origin, "contradicted"))


@add("A purged record does not name its purge", lambda _t, one: one.purged_by is not None)
def purge_not_named(t: Planting, one: Ended) -> Planted:
    one.outcome.say(detail="")
    return named((one.origin, "contradicted"))


def _later_purge(t: Planting, one: Ended) -> Ended | None:
    purges = (o for o in t.records if o.kind == "purge" and o.partition == one.partition)
    return next((o for o in purges if o.record.offset > one.record.offset), None)


@add(
    "A cancelled record names a purge that was written later",
    lambda t, one: (
        one.end == "cancelled"
        and one.purged_by is None
        and one.hop_from is None
        and _later_purge(t, one) is not None
    ),
)
def cancelled_as_purged(t: Planting, one: Ended) -> Planted:
    purge = _later_purge(t, one)
    assert purge
    one.outcome.say(detail=f"purged by {purge.origin}")
    return named((one.origin, "contradicted"))
