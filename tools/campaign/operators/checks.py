"""Faults in check-backs, which ask about half messages."""

from __future__ import annotations

from tools.campaign.contents import Ended, Held
from tools.campaign.operators.operator import Operators, Planted, Planting, named
from tools.campaign.scene import POLICY
from tools.campaign.scene import named as topic_of

CHECKS = Operators()
add = CHECKS.add
OF_ANOTHER = "a half message is mostly read in a later batch"


def _checks_of(t: Planting, one: Ended) -> list[Held]:
    topic = topic_of("checks", t.contents.run)
    same = [o for o in t.records if o.kind == "prepare" and o.ident == one.ident]
    if one.kind != "prepare" or len(same) > 1:
        return []
    return [
        held
        for held in t.contents.others
        if held.topic == topic and held.header("timer-id") == one.ident
    ]


def _was_asked(t: Planting, one: Ended) -> bool:
    return bool(_checks_of(t, one))


def _check(t: Planting, one: Ended) -> Held:
    return t.draw.choice(_checks_of(t, one))


@add("A check-back comes twice", _was_asked, follow=OF_ANOTHER)
def check_twice(t: Planting, one: Ended) -> Planted:
    first = _check(t, one)
    copy = first.copy()
    t.contents.add(copy)
    return named((one.origin, "contradicted"))


@add("A check-back comes before its time", _was_asked, follow=OF_ANOTHER)
def check_early(t: Planting, one: Ended) -> Planted:
    held = min(_checks_of(t, one), key=lambda check: check.number("timer-check") or 0)
    held.timestamp_ms = one.record.timestamp_ms + 5_999
    return named((one.origin, "contradicted"))


@add("A check-back shows another value", _was_asked, follow=OF_ANOTHER)
def check_value_changed(t: Planting, one: Ended) -> Planted:
    _check(t, one).value = b"another"
    return named((one.origin, "contradicted"))


@add("A check-back shows another key", _was_asked, follow=OF_ANOTHER)
def check_key_changed(t: Planting, one: Ended) -> Planted:
    _check(t, one).key = b"another"
    return named((one.origin, "contradicted"))


@add("A check-back has an extra header", _was_asked, follow=OF_ANOTHER)
def check_header_added(t: Planting, one: Ended) -> Planted:
    _check(t, one).headers.insert(0, ("added", b"x"))
    return named((one.origin, "contradicted"))


@add("There is one more check-back than the limit", _was_asked, follow=OF_ANOTHER)
def check_beyond_the_last(t: Planting, one: Ended) -> Planted:
    _check(t, one).set_header("timer-check", b"3")
    return named((one.origin, "contradicted"))


@add(
    "A half message expires before its last check-back",
    lambda _t, one: one.end == "expired" and one.kind == "prepare",
)
def half_expired_early(t: Planting, one: Ended) -> Planted:
    one.outcome.timestamp_ms = one.record.timestamp_ms + POLICY.immunity_ms
    return named((one.origin, "contradicted"))
