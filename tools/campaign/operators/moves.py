"""Faults in moved records, and in moves that came too late."""

from __future__ import annotations

from tools.campaign.contents import DELIVERED, MOVED, Ended
from tools.campaign.operators.operator import (
    Operators,
    Planted,
    Planting,
    both,
    ended_as,
    is_alone,
    named,
)

MOVES = Operators()
add = MOVES.add
LONG_MS = 15_000


def _has_mover(_t: Planting, one: Ended) -> bool:
    return one.successor is not None


def _moved(t: Planting, one: Ended) -> bool:
    return ended_as(MOVED)(t, one) and _has_mover(t, one)


def _came_too_late(_t: Planting, one: Ended) -> bool:
    return one.end == "missed" and one.kind == "record"


@add("The outcome of a moved record is lost", _moved)
def move_outcome_lost(t: Planting, one: Ended) -> Planted:
    """Remove the outcome. The move that took the record's place then has no predecessor."""
    assert one.successor
    t.contents.remove(one.outcome)
    goes_on = (one.successor.place, "contradicted")
    return named(goes_on, (one.origin, "missing pending overdue"), sides=t.later_of(one))


@add("A moved record is delivered", both(_moved, is_alone))
def moved_and_delivered(t: Planting, one: Ended) -> Planted:
    t.deliver(one, max(one.outcome.timestamp_ms, one.wanted_ms))
    return named((one.origin, "contradicted"), sides=t.later_of(one))


@add("A move that came too late is delivered", both(_came_too_late, is_alone))
def missed_and_delivered(t: Planting, one: Ended) -> Planted:
    before = {one.record.text("timer-first-origin"), getattr(t.predecessor(one), "origin", None)}
    sides = [(origin, "duplicated") for origin in before if origin]
    t.contents.remove(one.outcome)
    t.deliver(one, max(one.outcome.timestamp_ms, one.wanted_ms))
    return named((one.origin, "contradicted"), sides=[*sides, *t.later_of(one)])


def _missed_what_was_delivered(t: Planting, one: Ended) -> bool:
    before = t.predecessor(one)
    is_delivered = before is not None and before.end == DELIVERED
    return _came_too_late(t, one) and is_delivered


@add(
    "A move says missed, and the record that it names is delivered long after",
    _missed_what_was_delivered,
    continued="the named record may be known as ended by then",
    follow="the named record may be known as ended by then",
)
def missed_what_still_waited(t: Planting, one: Ended) -> Planted:
    before = t.predecessor(one)
    assert before
    one.outcome.timestamp_ms = before.delivery.timestamp_ms - LONG_MS
    return named((one.origin, "contradicted"))
