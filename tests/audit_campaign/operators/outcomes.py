"""Faults in what the outcomes say."""

from __future__ import annotations

from tests.audit_campaign.contents import Ended
from tests.audit_campaign.operators.operator import (
    Operators,
    Planted,
    Planting,
    both,
    ended_as,
    is_alone,
    is_control,
    is_delivered,
    named,
)
from tests.audit_campaign.scene import OWN

OUTCOMES = Operators()
add = OUTCOMES.add
READ_TO_DUE_MS = 6_000
TRANSACTION_MS = 10_000
SAID_OF_IT = "delivered missing contradicted"
"""Of what is delivered after its cancel: a later purge may have meant it, too."""
ALONE = ("cancelled", "replaced", "rolled-back")
HOPS = ("rolled", "requeued")
CONTROLLED = ("applied", "missed")
TOLD = (*ALONE, *HOPS)


def _must_have_ended(t: Planting, one: Ended) -> bool:
    """What was purged must have by its due alone: its outcome comes when it may."""
    return one.end in ALONE and (
        one.purged_by is None or 0 < one.due_ms < t.watermark_ms(one.partition)
    )


def _has_outcome(_t: Planting, one: Ended) -> bool:
    return bool(one.outcomes)


@add("The outcome of what was taken back is lost", _must_have_ended)
def outcome_lost(t: Planting, one: Ended) -> Planted:
    t.contents.remove(one.outcome)
    return named((one.origin, "missing"), sides=t.later_of(one))


@add("The outcome of a control record is lost", is_control("applied", "missed"))
def control_outcome_lost(t: Planting, one: Ended) -> Planted:
    t.contents.remove(one.outcome)
    return named((one.origin, "missing"))


@add("The outcome of what went on as another record is lost", ended_as(*HOPS))
def hop_outcome_lost(t: Planting, one: Ended) -> Planted:
    """The successor goes on from nothing."""
    t.contents.remove(one.outcome)
    next_one = [(one.successor.place, "contradicted")] if one.successor else []
    return named((one.origin, "missing"), *next_one, sides=t.later_of(one))


@add(
    "The outcome of a dead letter is lost",
    lambda _t, one: bool(one.outcomes) and bool(one.letters),
)
def letter_outcome_lost(t: Planting, one: Ended) -> Planted:
    t.contents.remove(one.outcome)
    return named((one.origin, "contradicted"), sides=t.later_of(one))


@add("An outcome is there twice", _has_outcome)
def outcome_twice(t: Planting, one: Ended) -> Planted:
    t.later(one.outcome)
    return named((one.origin, "duplicated"))


@add("There is a second, other outcome", _has_outcome)
def two_outcomes(t: Planting, one: Ended) -> Planted:
    other = t.later(one.outcome)
    said = t.draw.choice([o for o in ("cancelled", "expired", "rolled-back") if o != one.end])
    other.say(outcome=said)
    return named((one.origin, "contradicted"), sides=t.later_of(one))


@add("A delivered record has an outcome, too", is_delivered)
def delivered_and_outcome(t: Planting, one: Ended) -> Planted:
    said = t.draw.choice(["cancelled", "replaced", "dead-lettered", "expired", "rolled"])
    t.end_as(one, said, one.delivery.timestamp_ms)
    return named((one.origin, "contradicted"), sides=t.later_of(one))


@add("A delivered record has an outcome instead", is_delivered)
def delivered_as_cancelled(t: Planting, one: Ended) -> Planted:
    """Nothing cancelled it."""
    t.end_as(one, "cancelled", one.delivery.timestamp_ms)
    t.contents.remove(one.delivery)
    return named((one.origin, "contradicted"), sides=t.later_of(one))


@add("What was cancelled is said to be replaced", ended_as("cancelled"))
def cancelled_as_replaced(t: Planting, one: Ended) -> Planted:
    one.outcome.say(outcome="replaced", next_origin=one.origin)
    return named((one.origin, "contradicted"), sides=t.later_of(one))


@add("What was replaced is said to be cancelled", ended_as("replaced"))
def replaced_as_cancelled(t: Planting, one: Ended) -> Planted:
    one.outcome.say(outcome="cancelled")
    return named((one.origin, "contradicted"), sides=t.later_of(one))


@add("What replaced it is said to be another record", ended_as("replaced"))
def replaced_by_another(t: Planting, one: Ended) -> Planted:
    wrong = t.draw.choice([one.origin, None, f"{OWN.ingress}/{one.partition}/7777"])
    one.outcome.say(next_origin=wrong)
    return named((one.origin, "contradicted"))


@add("What was rolled back is said to have expired", ended_as("rolled-back"))
def rolled_back_as_expired(t: Planting, one: Ended) -> Planted:
    one.outcome.say(outcome="expired")
    return named((one.origin, "contradicted"))


@add(
    "A half message that expired is said to be rolled back",
    lambda _t, one: one.end == "expired" and one.kind == "prepare",
)
def expired_as_rolled_back(t: Planting, one: Ended) -> Planted:
    one.outcome.say(outcome="rolled-back")
    return named((one.origin, "contradicted"))


@add("A requeued record is said to be rolled", ended_as("requeued"))
def requeued_as_rolled(t: Planting, one: Ended) -> Planted:
    """It had been due."""
    one.outcome.say(outcome="rolled")
    return named((one.origin, "contradicted"), sides=t.later_of(one))


@add("An outcome has a name that there is not", _has_outcome)
def outcome_unknown(t: Planting, one: Ended) -> Planted:
    one.outcome.say(outcome="evaporated")
    next_one = [(one.successor.place, "contradicted")] if one.successor else []
    return named((one.origin, "contradicted"), sides=[*t.later_of(one), *next_one])


@add("Of a control record that found something it is said that it missed", is_control("applied"))
def applied_as_missed(t: Planting, one: Ended) -> Planted:
    one.outcome.say(outcome="missed")
    return named((one.origin, "contradicted"), sides=t.purged_by(one))


@add("Of a control record that found nothing it is said that it applied", is_control("missed"))
def missed_as_applied(t: Planting, one: Ended) -> Planted:
    one.outcome.say(outcome="applied")
    return named((one.origin, "contradicted"))


@add("The due that an outcome says is another one", ended_as(*TOLD))
def outcome_due_changed(t: Planting, one: Ended) -> Planted:
    one.outcome.say(due=one.due_ms + 1)
    return named((one.origin, "altered"))


@add("The due is missing in the outcome of what went on", ended_as(*HOPS))
def outcome_due_lost(t: Planting, one: Ended) -> Planted:
    one.outcome.say(due=None)
    return named((one.origin, "altered"))


@add("The id that an outcome says is another one", lambda _t, one: one.outcome_has_id)
def outcome_id_changed(t: Planting, one: Ended) -> Planted:
    one.outcome.say(id="another")
    return named((one.origin, "altered"))


@add(
    "The id is missing in the outcome of what was taken back",
    lambda _t, one: one.outcome_has_id and one.end in {*ALONE, "applied", "missed"},
)
def outcome_id_lost(t: Planting, one: Ended) -> Planted:
    one.outcome.say(id=None)
    return named((one.origin, "altered"))


@add("An outcome names an offset that the ingress never had", _must_have_ended)
def outcome_of_nothing(t: Planting, one: Ended) -> Planted:
    origin = f"{OWN.ingress}/{one.partition}/{one.record.offset + 5_000}"
    one.outcome.say(origin=origin)
    return named((origin, "orphaned"), (one.origin, "missing"), sides=t.later_of(one))


@add("An outcome cannot be read", _must_have_ended)
def outcome_unreadable(t: Planting, one: Ended) -> Planted:
    one.outcome.value = t.draw.choice([b"", None, b"{", b"[]", b'{"outcome": "cancelled"}'])
    place = f"@{one.outcome.place}"
    return named((place, "orphaned"), (one.origin, "missing"), sides=t.later_of(one))


@add("Two records have each other's outcome", lambda t, one: _mate(t, one) is not None)
def outcomes_swapped(t: Planting, one: Ended) -> Planted:
    other = _mate(t, one)
    assert other
    one.outcome.say(origin=other.origin)
    other.outcome.say(origin=one.origin)
    wrong = "contradicted altered"
    sides = [*t.later_of(one), *t.later_of(other)]
    return named((one.origin, wrong), (other.origin, wrong), sides=sides)


def _mate(t: Planting, one: Ended) -> Ended | None:
    """A control record of its partition whose outcome came in the same phase."""
    if not _must_have_ended(t, one):
        return None
    controls = (o for o in t.records if o.partition == one.partition and o.end in CONTROLLED)
    return next((o for o in controls if o.outcome.since == one.outcome.since), None)


def _is_ripe(t: Planting, one: Ended) -> bool:
    """Whether its due had passed at the last moment."""
    return one.due_ms > 0 and one.due_ms + TRANSACTION_MS < t.watermark_ms(one.partition)


def _cancel_that_applied(t: Planting, one: Ended) -> Ended | None:
    """Or the recall that did."""
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
    "A cancel or recall applied, and the record is delivered all the same",
    both(_was_cancelled, is_alone, _is_ripe),
)
def cancelled_and_delivered_instead(t: Planting, one: Ended) -> Planted:
    cancel = _cancel_that_applied(t, one)
    assert cancel
    t.contents.remove(one.outcome)
    t.deliver(one)
    sides = [(one.origin, SAID_OF_IT), *t.recalls_of(one)]
    return named((cancel.origin, "contradicted"), sides=sides)


def _waited_long(t: Planting, one: Ended) -> bool:
    """Whether it was not due when it was taken back."""
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
    t.deliver(one)
    sides = [(one.origin, SAID_OF_IT), *t.recalls_of(one)]
    return named((cancel.origin, "contradicted"), sides=sides)


def _was_replaced(t: Planting, one: Ended) -> bool:
    """Whether something else tells that the newer record had been read before it was due."""
    next_one = t.next_with_id(one)
    return (
        one.end == "replaced"
        and one.kind == "record"
        and one.hop_from is None
        and next_one is not None
        and next_one.kind == "record"
        and one.due_ms > _read_ms(t, next_one) + READ_TO_DUE_MS
    )


def _read_ms(t: Planting, one: Ended) -> int:
    """When it had been read, as the ends of what lies at and behind it tell."""
    ends = [
        end.timestamp_ms
        for other in t.records
        if other.partition == one.partition and other.record.offset >= one.record.offset
        for end in (*other.deliveries, *other.outcomes)
    ]
    return min(ends, default=2**62)


@add(
    "A replacement is ignored: both records are delivered",
    both(_was_replaced, is_alone, _is_ripe, _waited_long),
)
def replacement_ignored(t: Planting, one: Ended) -> Planted:
    t.contents.remove(one.outcome)
    t.deliver(one)
    return named((one.origin, "contradicted missing"))


def _purge_of(t: Planting, one: Ended) -> Ended | None:
    """The purge that ended it as it waited."""
    purge = next((other for other in t.records if other.origin == one.purged_by), None)
    is_first = one.hop_from is None and one.kind == "record"
    return purge if is_first and purge is not None and purge.end == "applied" else None


def _waited_at_its_purge(t: Planting, one: Ended) -> bool:
    purge = _purge_of(t, one)
    return purge is not None and one.due_ms > purge.outcome.timestamp_ms + READ_TO_DUE_MS


@add(
    "A purge applied, and what it ended is delivered when it is due",
    both(_waited_at_its_purge, is_alone, _is_ripe),
)
def purged_and_delivered_instead(t: Planting, one: Ended) -> Planted:
    t.contents.remove(one.outcome)
    t.deliver(one)
    return named((one.origin, "contradicted"), sides=t.later_of(one))


@add("What a purge ended names another one", lambda _t, one: one.purged_by is not None)
def purged_by_another(t: Planting, one: Ended) -> Planted:
    """A later one, one of another partition, or none at all."""
    purges = [o.origin for o in t.records if o.kind == "purge" and o.origin != one.purged_by]
    other = t.draw.choice([*purges, f"{OWN.ingress}/{one.partition}/7777", one.origin])
    one.outcome.say(detail=f"purged by {other}")
    return named((one.origin, "contradicted"))


@add("What a purge ended does not name it", lambda _t, one: one.purged_by is not None)
def purge_not_named(t: Planting, one: Ended) -> Planted:
    one.outcome.say(detail="")
    return named((one.origin, "contradicted"))


def _later_purge(t: Planting, one: Ended) -> Ended | None:
    """A purge that was read after what ended the record."""
    purges = (o for o in t.records if o.kind == "purge" and o.partition == one.partition)
    return next((o for o in purges if o.record.offset > one.record.offset), None)


@add(
    "What a cancel ended names a purge from after it",
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
