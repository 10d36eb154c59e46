"""Faults in the outcomes."""

from __future__ import annotations

from tools.campaign.contents import MOVED, Ended
from tools.campaign.operators.operator import (
    Operators,
    Planted,
    Planting,
    ended_as,
    is_control,
    is_delivered,
    named,
)
from tools.campaign.scene import OWN

OUTCOMES = Operators()
add = OUTCOMES.add
ALONE = ("cancelled", "replaced", "rolled-back")
HOPS = ("rolled", "requeued")
CONTROLLED = ("applied", "missed")
TOLD = (*ALONE, *HOPS)


def _must_have_ended(t: Planting, one: Ended) -> bool:
    """Return whether the record must have ended. A purged record must also have been due."""
    return one.end in ALONE and (
        one.purged_by is None or 0 < one.due_ms < t.watermark_ms(one.partition)
    )


def _has_outcome(_t: Planting, one: Ended) -> bool:
    return bool(one.outcomes)


@add("The outcome of a cancelled or replaced record is lost", _must_have_ended)
def outcome_lost(t: Planting, one: Ended) -> Planted:
    t.contents.remove(one.outcome)
    return named((one.origin, "missing"), sides=t.later_of(one))


@add("The outcome of a control record is lost", is_control("applied", "missed"))
def control_outcome_lost(t: Planting, one: Ended) -> Planted:
    t.contents.remove(one.outcome)
    return named((one.origin, "missing"))


@add("The outcome of a record with a successor is lost", ended_as(*HOPS))
def hop_outcome_lost(t: Planting, one: Ended) -> Planted:
    """Remove the outcome. The successor then has no predecessor."""
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


@add("A record has its outcome twice", _has_outcome)
def outcome_twice(t: Planting, one: Ended) -> Planted:
    t.later(one.outcome)
    return named((one.origin, "duplicated"))


@add("A record has a second, different outcome", _has_outcome)
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


@add(
    "A delivered record has an outcome instead of its delivery",
    lambda t, one: is_delivered(t, one) and not t.later_of(one),
)
def delivered_as_cancelled(t: Planting, one: Ended) -> Planted:
    """Replace the delivery by an outcome. No record tried to cancel it."""
    t.end_as(one, "cancelled", one.delivery.timestamp_ms)
    t.contents.remove(one.delivery)
    return named((one.origin, "contradicted"))


@add("A cancelled record is said to be replaced", ended_as("cancelled"))
def cancelled_as_replaced(t: Planting, one: Ended) -> Planted:
    one.outcome.say(outcome="replaced", next_origin=one.origin)
    return named((one.origin, "contradicted"), sides=t.later_of(one))


@add("A replaced record is said to be cancelled", ended_as("replaced"))
def replaced_as_cancelled(t: Planting, one: Ended) -> Planted:
    one.outcome.say(outcome="cancelled")
    return named((one.origin, "contradicted"), sides=t.later_of(one))


@add("The outcome of a replaced record names another newer record", ended_as("replaced"))
def replaced_by_another(t: Planting, one: Ended) -> Planted:
    wrong = t.draw.choice([one.origin, None, f"{OWN.ingress}/{one.partition}/7777"])
    one.outcome.say(next_origin=wrong)
    return named((one.origin, "contradicted"))


@add("A rolled-back half message is said to have expired", ended_as("rolled-back"))
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
    """Change the outcome. The record was due, so `rolled` cannot be true."""
    one.outcome.say(outcome="rolled")
    return named((one.origin, "contradicted"), sides=t.later_of(one))


@add(
    "An outcome has an unknown name",
    lambda t, one: _has_outcome(t, one) and not t.may_wait(one),
)
def outcome_unknown(t: Planting, one: Ended) -> Planted:
    """Make the outcome unknown. If the record is a move that came too late, its outcome `missed` is
    gone. Then the move looks like a second successor."""
    one.outcome.say(outcome="evaporated")
    next_one = [(one.successor.place, "contradicted")] if one.successor else []
    before = t.predecessor(one) if one.end == "missed" else None
    twice = [(before.origin, "duplicated")] if before and before.end in {*HOPS, MOVED} else []
    return named((one.origin, "contradicted"), sides=[*t.later_of(one), *next_one, *twice])


@add("A control record that found something says missed", is_control("applied"))
def applied_as_missed(t: Planting, one: Ended) -> Planted:
    one.outcome.say(outcome="missed")
    return named((one.origin, "contradicted"), sides=t.purged_by(one))


@add("A control record that found nothing says applied", is_control("missed"))
def missed_as_applied(t: Planting, one: Ended) -> Planted:
    one.outcome.say(outcome="applied")
    return named((one.origin, "contradicted"))


@add("An outcome has another due", ended_as(*TOLD))
def outcome_due_changed(t: Planting, one: Ended) -> Planted:
    one.outcome.say(due=one.due_ms + 1)
    return named((one.origin, "altered"))


@add("The outcome of a record with a successor has no due", ended_as(*HOPS))
def outcome_due_lost(t: Planting, one: Ended) -> Planted:
    one.outcome.say(due=None)
    return named((one.origin, "altered"))


@add("An outcome has another id", lambda _t, one: one.outcome_has_id)
def outcome_id_changed(t: Planting, one: Ended) -> Planted:
    one.outcome.say(id="another")
    return named((one.origin, "altered"))


@add(
    "The outcome of a cancelled or replaced record has no id",
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
    """Return a control record of the same partition whose outcome exists since the same moment."""
    if not _must_have_ended(t, one):
        return None
    controls = (o for o in t.records if o.partition == one.partition and o.end in CONTROLLED)
    return next((o for o in controls if o.outcome.since == one.outcome.since), None)
