"""Faults in the dead letters and in the stated reasons."""

from __future__ import annotations

from tools.campaign.contents import Ended
from tools.campaign.operators.operator import (
    Operators,
    Planted,
    Planting,
    both,
    ended_as,
    is_alone,
    is_plain,
    named,
)
from tools.campaign.scene import OVERDUE_MS, OWN

LETTERS = Operators()
add = LETTERS.add
WAS_OPEN = "the ingress may have deleted a record that was pending before"
REFUSED = ("time-unreadable", "header-unknown", "level-unknown", "id-bad", "partition-bad")


def _has_letter(_t: Planting, one: Ended) -> bool:
    return bool(one.letters) and bool(one.outcomes)


def _has_whole_letter(t: Planting, one: Ended) -> bool:
    return _has_letter(t, one) and one.letter.value is not None


def _is_refused(t: Planting, one: Ended) -> bool:
    return _has_letter(t, one) and one.code in {"time-unreadable", "header-unknown", "id-bad"}


@add("A dead letter is lost", _has_letter)
def letter_lost(t: Planting, one: Ended) -> Planted:
    t.contents.remove(one.letter)
    return named((one.origin, "contradicted"))


@add("A record has two dead letters", _has_letter)
def letter_twice(t: Planting, one: Ended) -> Planted:
    t.later(one.letter)
    return named((one.origin, "duplicated"))


@add("A dead letter has another key", _has_letter)
def letter_key_changed(t: Planting, one: Ended) -> Planted:
    one.letter.key = (one.letter.key or b"") + b"!"
    return named((one.origin, "altered"))


@add("A dead letter has another value", _has_whole_letter)
def letter_value_changed(t: Planting, one: Ended) -> Planted:
    one.letter.value = (one.letter.value or b"") + b"~"
    return named((one.origin, "altered"))


@add("A dead letter lacks a header", _has_letter)
def letter_header_lost(t: Planting, one: Ended) -> Planted:
    del one.letter.headers[0]
    return named((one.origin, "altered"))


@add("A dead letter has an extra header", _has_letter)
def letter_header_added(t: Planting, one: Ended) -> Planted:
    one.letter.headers.insert(0, ("added", b"x"))
    return named((one.origin, "altered"))


@add(
    "A dead letter shows nothing of its record, but its outcome does not say so", _has_whole_letter
)
def letter_bare(t: Planting, one: Ended) -> Planted:
    said = {"timer-error", "timer-error-detail", "timer-origin"}
    one.letter.key = one.letter.value = None
    one.letter.headers = [h for h in one.letter.headers if h[0] in said]
    return named((one.origin, "altered"))


@add("The dead letter of a refused record gives another reason", _is_refused)
def code_changed(t: Planting, one: Ended) -> Planted:
    one.letter.set_header("timer-error", b"too-large" if t.draw.random() < 0.5 else b"hop-bad")
    return named((one.origin, "contradicted"))


@add("A dead letter names a fault that its record does not have", is_plain)
def code_made_up(t: Planting, one: Ended) -> Planted:
    code = t.draw.choice(REFUSED[:-1])
    t.bury(one, code, "made up", one.delivery.timestamp_ms)
    t.contents.remove(one.delivery)
    return named((one.origin, "contradicted"))


@add("A delivered record has a dead letter, too", is_plain)
def delivered_and_letter(t: Planting, one: Ended) -> Planted:
    t.add_letter(one, "publish-failed", "made up", one.delivery.timestamp_ms)
    return named((one.origin, "contradicted"))


def _ended_otherwise(t: Planting, one: Ended) -> bool:
    """Return whether the record has an outcome and no dead letter. A purged record must also have
    been due."""
    has_outcome = one.is_read and bool(one.outcomes) and not one.letters
    return has_outcome and (one.purged_by is None or 0 < one.due_ms < t.watermark_ms(one.partition))


@add(
    "A cancelled or replaced record, one with a successor, or a decision has a dead letter, too",
    _ended_otherwise,
)
def taken_back_and_letter(t: Planting, one: Ended) -> Planted:
    t.add_letter(one, "publish-failed", "made up", one.outcome.timestamp_ms)
    return named((one.origin, "contradicted"))


@add("A pending record has a dead letter, and no outcome", is_plain)
def letter_instead_of_delivery(t: Planting, one: Ended) -> Planted:
    t.add_letter(one, "publish-failed", "made up", one.delivery.timestamp_ms)
    t.contents.remove(one.delivery)
    return named((one.origin, "contradicted"))


@add("A dead letter names an offset that the ingress never had", _has_letter)
def letter_of_nothing(t: Planting, one: Ended) -> Planted:
    copy = t.later(one.letter)
    origin = f"{OWN.ingress}/{one.partition}/{one.record.offset + 5_000}"
    copy.set_header("timer-origin", origin.encode())
    return named((origin, "orphaned"))


@add(
    "A dead letter says `body-gone`, but the ingress has the record",
    is_plain,
    continued=WAS_OPEN,
    follow=WAS_OPEN,
)
def excuse_body_gone(t: Planting, one: Ended) -> Planted:
    t.bury(one, "body-gone", "the ingress has deleted it", one.delivery.timestamp_ms)
    t.contents.remove(one.delivery)
    return named((one.origin, "contradicted"))


@add(
    "A record becomes a dead letter after the first attempt, because its target cannot be reached",
    is_plain,
)
def excuse_target_unknown(t: Planting, one: Ended) -> Planted:
    code = t.draw.choice(["target-unknown", "not-authorised", "partition-unavailable"])
    t.bury(one, code, "there is none", one.delivery.timestamp_ms)
    t.contents.remove(one.delivery)
    return named((one.origin, "contradicted"))


@add(
    "A cancel, purge or decision becomes a dead letter, as if it could not be published",
    ended_as("applied", "missed", kinds=("cancel", "purge", "commit", "rollback")),
)
def control_buried(t: Planting, one: Ended) -> Planted:
    t.contents.remove(one.outcome)
    t.bury(one, "publish-failed", "made up", one.outcome.timestamp_ms)
    return named((one.origin, "contradicted"), sides=t.purged_by(one))


def _overdue(ms: int, pattern: str, allowed_ms: int = OVERDUE_MS) -> str:
    return f"{ms} ms overdue; {pattern} allows {allowed_ms} (release.overdue)"


@add("A record becomes a dead letter as overdue, but no rule says so", is_plain)
def excuse_overdue_without_rule(t: Planting, one: Ended) -> Planted:
    detail = _overdue(OVERDUE_MS + 1, "orders-*")
    t.bury(one, "overdue", detail, one.wanted_ms + OVERDUE_MS + 1)
    t.contents.remove(one.delivery)
    return named((one.origin, "contradicted"))


@add("A record is dropped as overdue, but the rule is for other targets", is_plain)
def excuse_dropped_by_another_rule(t: Planting, one: Ended) -> Planted:
    detail = _overdue(OVERDUE_MS + 1, "drop-*" if _kind(one) != "drop" else "bury-*")
    t.end_as(one, "expired", one.wanted_ms + OVERDUE_MS + 1, detail=detail)
    t.contents.remove(one.delivery)
    return named((one.origin, "contradicted"))


@add(
    "A record is dropped as overdue, but the rule says dead letter",
    lambda t, one: is_plain(t, one) and _kind(one) == "bury",
)
def excuse_dropped_instead_of_buried(t: Planting, one: Ended) -> Planted:
    detail = _overdue(OVERDUE_MS + 1, "bury-*")
    t.end_as(one, "expired", one.wanted_ms + OVERDUE_MS + 1, detail=detail)
    t.contents.remove(one.delivery)
    return named((one.origin, "contradicted"))


def _waits(_t: Planting, one: Ended) -> bool:
    return one.wanted_ms > one.record.timestamp_ms + 1_000


@add(
    "A record is dropped as overdue before it is due",
    lambda t, one: is_plain(t, one) and _kind(one) == "drop" and _waits(t, one),
)
def excuse_overdue_before_its_due(t: Planting, one: Ended) -> Planted:
    detail = _overdue(OVERDUE_MS + 1, "drop-*")
    t.end_as(one, "expired", one.wanted_ms - 1, detail=detail)
    t.contents.remove(one.delivery)
    return named((one.origin, "contradicted"))


def _kind(one: Ended) -> str:
    return one.delivery.topic.partition("-")[0]


def _is_between(t: Planting, one: Ended) -> bool:
    """Return whether the record's target took deliveries of at least this record's size: one in the
    second before the record's delivery, and one in the second after it."""
    if not (is_plain(t, one) and one.delivery.topic.startswith("orders-")):
        return False
    second = one.delivery.timestamp_ms // 1_000
    took = {
        other.delivery.timestamp_ms // 1_000
        for other in t.records
        if other.deliveries
        and other.delivery.topic == one.delivery.topic
        and _bytes(other) >= _bytes(one) + _letter_bytes(one)
    }
    return {second - 1, second + 1} <= took


def _bytes(one: Ended) -> int:
    return len(one.delivery.key or b"") + len(one.delivery.value or b"")


def _letter_bytes(one: Ended) -> int:
    return sum(len(n) + len(v or b"") for n, v in one.record.headers) + 120


@add(
    "A dead letter says `too-large`, but its target took records of that size",
    both(_is_between, is_alone),
)
def excuse_too_large(t: Planting, one: Ended) -> Planted:
    t.bury(one, "too-large", "made up", one.delivery.timestamp_ms)
    t.contents.remove(one.delivery)
    return named((one.origin, "contradicted"))
