"""Faults in delivered records."""

from __future__ import annotations

from tools.campaign.contents import Ended, Held
from tools.campaign.operators.operator import (
    FAITHFUL_MS,
    Operators,
    Planted,
    Planting,
    both,
    ended_as,
    is_alone,
    is_control,
    is_delivered,
    is_plain,
    named,
)
from tools.campaign.scene import LIMIT_MS, MOMENTS_MS, OWN
from tools.campaign.scene import named as target_of

DELIVERIES = Operators()
add = DELIVERIES.add
NOT_FOLLOWED = "a record that need not have ended is pending"


def _is_prompt(_t: Planting, one: Ended) -> bool:
    return is_delivered(_t, one) and 0 <= one.delivery.timestamp_ms - one.wanted_ms < FAITHFUL_MS


def _has_users(_t: Planting, one: Ended) -> bool:
    return is_delivered(_t, one) and bool(_users(one.delivery))


def _users(one: Held) -> list[int]:
    return [n for n, (name, _) in enumerate(one.headers) if not name.startswith("timer-")]


def _has_hopped(_t: Planting, one: Ended) -> bool:
    return is_delivered(_t, one) and one.delivery.header("timer-first-origin") is not None


def _has_place(_t: Planting, one: Ended) -> bool:
    asks = one.delivery.key is not None or one.record.header("timer-partition") is not None
    return asks and _t.contents.partition_counts.get(one.delivery.topic, 1) > 1


@add("A delivery is lost", is_delivered)
def delivery_lost(t: Planting, one: Ended) -> Planted:
    t.contents.remove(one.delivery)
    return named((one.origin, "missing"))


@add("A record is delivered twice", is_delivered)
def delivered_twice(t: Planting, one: Ended) -> Planted:
    t.later(one.delivery)
    return named((one.origin, "duplicated"))


@add("A record is delivered a second time, to another topic", is_delivered)
def delivered_to_two_topics(t: Planting, one: Ended) -> Planted:
    other = t.later(one.delivery)
    t.contents.remove(other)
    other.topic = target_of("dlq-none", t.contents.run)
    t.contents.add(other)
    return named((one.origin, "duplicated"))


@add("A record arrives a millisecond before its due", _is_prompt)
def delivered_early(t: Planting, one: Ended) -> Planted:
    one.delivery.timestamp_ms = one.wanted_ms - 1
    return named((one.origin, "early"))


@add("A record arrives later than is allowed", both(is_plain, is_alone))
def delivered_late(t: Planting, one: Ended) -> Planted:
    one.delivery.timestamp_ms = one.first_ms + LIMIT_MS + 1
    return named((one.origin, "late"), sides=t.recalls_of(one))


@add(
    "A record arrives long before its due, with its due as timestamp",
    lambda _t, one: one.end == "pending" and one.is_plain and one.is_read and _is_far(one),
    follow=NOT_FOLLOWED,
)
def claims_a_time_to_come(t: Planting, one: Ended) -> Planted:
    due_ms = one.record.timestamp_ms + (one.record.number("timer-delay") or 0)
    found = t.deliver(one, due_ms, due_ms)
    found.since = one.record.since
    return named((one.origin, "early"))


def _names_topic(one: Ended) -> bool:
    return one.record.header("timer-topic") is not None


def _is_far(one: Ended) -> bool:
    delay_ms = one.record.number("timer-delay")
    names = {name for name, _ in one.record.headers}
    others = {"timer-partition", "timer-deliver-at", "timer-retry-group", "x-delay", "timer-topic"}
    is_simple = delay_ms is not None and not (names & others - {"timer-topic"})
    due_ms = one.record.timestamp_ms + (delay_ms or 0)
    return is_simple and due_ms > MOMENTS_MS[-1] + 10_000 and "timer-topic" in names


@add("A record arrives with another key", both(is_delivered, is_alone))
def key_changed(t: Planting, one: Ended) -> Planted:
    one.delivery.key = (one.delivery.key or b"") + b"!"
    return named((one.origin, "altered"))


@add(
    "A record arrives without its key",
    lambda t, one: is_delivered(t, one) and bool(one.delivery.key),
)
def key_lost(t: Planting, one: Ended) -> Planted:
    one.delivery.key = None
    return named((one.origin, "altered"))


@add("A record arrives with another value", is_delivered)
def value_changed(t: Planting, one: Ended) -> Planted:
    one.delivery.value = (one.delivery.value or b"")[:-1] + b"~"
    return named((one.origin, "altered"))


@add(
    "A record arrives without its value",
    lambda t, one: is_delivered(t, one) and bool(one.record.value),
)
def value_lost(t: Planting, one: Ended) -> Planted:
    one.delivery.value = None
    return named((one.origin, "altered"))


@add(
    "A record arrives with an empty value instead of none",
    lambda t, one: is_delivered(t, one) and one.delivery.value is None,
)
def no_value_made_empty(t: Planting, one: Ended) -> Planted:
    one.delivery.value = b""
    return named((one.origin, "altered"))


@add("A record arrives with an extra header", is_delivered)
def header_added(t: Planting, one: Ended) -> Planted:
    one.delivery.headers.insert(0, ("added", b"x"))
    return named((one.origin, "altered"))


@add("A record arrives without one of its headers", _has_users)
def header_lost(t: Planting, one: Ended) -> Planted:
    del one.delivery.headers[t.draw.choice(_users(one.delivery))]
    return named((one.origin, "altered"))


@add("A record arrives with another value of a header", _has_users)
def header_changed(t: Planting, one: Ended) -> Planted:
    number = t.draw.choice(_users(one.delivery))
    name, value = one.delivery.headers[number]
    one.delivery.headers[number] = (name, (value or b"") + b"~")
    return named((one.origin, "altered"))


@add(
    "A record arrives with its headers in another order",
    lambda t, one: is_delivered(t, one) and len(_users(one.delivery)) > 1,
)
def headers_swapped(t: Planting, one: Ended) -> Planted:
    first, second = _users(one.delivery)[:2]
    headers = one.delivery.headers
    headers[first], headers[second] = headers[second], headers[first]
    return named((one.origin, "altered"))


@add("A record arrives in another topic", is_delivered)
def delivered_elsewhere(t: Planting, one: Ended) -> Planted:
    moved = one.delivery.copy()
    t.contents.remove(one.delivery)
    moved.topic = target_of("somewhere", t.contents.run)
    t.contents.add(moved)
    return named((one.origin, "altered"))


@add("A record arrives in another partition", both(is_delivered, _has_place))
def partition_changed(t: Planting, one: Ended) -> Planted:
    moved, count = one.delivery.copy(), t.contents.partition_counts[one.delivery.topic]
    t.contents.remove(one.delivery)
    moved.partition = (moved.partition + 1) % count
    t.contents.add(moved)
    return named((one.origin, "altered"))


@add("The `timer-due` of a delivery has another value", is_delivered)
def due_stamp_changed(t: Planting, one: Ended) -> Planted:
    one.delivery.set_header("timer-due", b"%d" % (one.due_ms - 1))
    return named((one.origin, "altered"))


@add("A delivery has no `timer-due`", is_delivered)
def due_stamp_lost(t: Planting, one: Ended) -> Planted:
    one.delivery.headers = [h for h in one.delivery.headers if h[0] != "timer-due"]
    return named((one.origin, "altered"))


@add("A delivery keeps a header of the request", is_delivered)
def request_header_kept(t: Planting, one: Ended) -> Planted:
    one.delivery.headers.insert(0, ("timer-topic", one.delivery.topic.encode()))
    return named((one.origin, "altered"))


@add("A rewritten record is delivered without `timer-first-origin`", _has_hopped)
def first_origin_lost(t: Planting, one: Ended) -> Planted:
    one.delivery.headers = [h for h in one.delivery.headers if h[0] != "timer-first-origin"]
    return named((one.origin, "altered"))


@add("The `timer-first-origin` of a delivery names another record", _has_hopped)
def first_origin_changed(t: Planting, one: Ended) -> Planted:
    one.delivery.set_header("timer-first-origin", one.origin.encode())
    return named((one.origin, "altered"))


@add(
    "A delivery of a record that was never rewritten has `timer-first-origin`",
    lambda t, one: is_delivered(t, one) and not _has_hopped(t, one),
)
def first_origin_added(t: Planting, one: Ended) -> Planted:
    one.delivery.headers.append(("timer-first-origin", one.origin.encode()))
    return named((one.origin, "altered"))


@add("A delivery names an offset that the ingress never had", is_delivered)
def origin_beyond_the_log(t: Planting, one: Ended) -> Planted:
    copy = t.later(one.delivery)
    origin = f"{OWN.ingress}/{one.partition}/{one.record.offset + 5_000}"
    copy.set_header("timer-origin", origin.encode())
    return named((origin, "orphaned"))


@add("The `timer-origin` of a delivery cannot be read", is_delivered)
def origin_unreadable(t: Planting, one: Ended) -> Planted:
    copy = t.later(one.delivery)
    text = t.draw.choice([b"", b"nonsense", b"timer.ingress/x/1", b"timer.ingress/0"])
    copy.set_header("timer-origin", text)
    return named((f"@{copy.place}", "orphaned"))


@add("Two deliveries have each other's `timer-origin`", lambda t, one: _mate(t, one) is not None)
def origins_swapped(t: Planting, one: Ended) -> Planted:
    other = _mate(t, one)
    assert other
    one.delivery.set_header("timer-origin", other.origin.encode())
    other.delivery.set_header("timer-origin", one.origin.encode())
    wrong = "altered early"
    return named((one.origin, wrong), (other.origin, wrong))


def _mate(t: Planting, one: Ended) -> Ended | None:
    if not (_is_prompt(t, one) and one.is_plain and one.record.value):
        return None
    for other in t.records:
        is_other = other.partition == one.partition and other.record.value != one.record.value
        is_other &= bool(other.deliveries) and other.delivery.since == one.delivery.since
        if is_other and _is_prompt(t, other) and other.is_plain and other.record.value:
            return other
    return None


def _overtakes(t: Planting, one: Ended) -> Ended | None:
    """Return the next record with the same due that follows the record in its target partition."""
    if not (is_delivered(t, one) and one.kind == "record" and one.hop_from is None):
        return None
    for other in t.records:
        if (
            is_delivered(t, other)
            and other.kind == "record"
            and other.hop_from is None
            and (other.partition, other.due_ms) == (one.partition, one.due_ms)
            and other.record.offset > one.record.offset
            and other.delivery.topic == one.delivery.topic
            and other.delivery.partition == one.delivery.partition
        ):
            return other
    return None


@add(
    "Two records with the same due arrive in the wrong order",
    lambda t, o: _overtakes(t, o) is not None,
)
def order_swapped(t: Planting, one: Ended) -> Planted:
    """Swap two records. Records with the same due between them may then be out of order, too."""
    other = _overtakes(t, one)
    assert other
    first, second = one.delivery, other.delivery
    first.offset, second.offset = second.offset, first.offset
    first.since, second.since = second.since, first.since
    between = [
        (o.origin, "contradicted")
        for o in t.records
        if o.partition == one.partition and o.due_ms == one.due_ms and o.origin != other.origin
    ]
    return named((other.origin, "contradicted"), sides=between)


@add(
    "A cancelled or replaced record is delivered, too",
    both(ended_as("cancelled", "replaced"), is_alone),
)
def taken_back_and_delivered(t: Planting, one: Ended) -> Planted:
    t.deliver(one)
    return named((one.origin, "contradicted"), sides=t.later_of(one))


@add(
    "The record of a dead letter is delivered, too",
    lambda _t, one: one.end == "dead-lettered" and one.record.header("timer-topic") is not None,
)
def buried_and_delivered(t: Planting, one: Ended) -> Planted:
    t.deliver(one, one.outcome.timestamp_ms + 1, one.record.timestamp_ms)
    return named((one.origin, "contradicted"))


@add(
    "A record that must be refused is delivered",
    lambda _t, one: (
        one.code in {"time-unreadable", "header-unknown", "level-unknown", "id-bad"}
        and one.kind == "record"
    ),
)
def refused_and_delivered_instead(t: Planting, one: Ended) -> Planted:
    t.deliver(one, one.outcome.timestamp_ms, one.record.timestamp_ms)
    t.contents.remove(one.outcome, one.letter)
    return named((one.origin, "contradicted"))


@add("A half message that was rolled back is delivered", ended_as("rolled-back"))
def rolled_back_and_delivered(t: Planting, one: Ended) -> Planted:
    t.deliver(one)
    t.contents.remove(one.outcome)
    return named((one.origin, "contradicted"), sides=t.later_of(one))


@add(
    "A half message that expired is delivered",
    lambda _t, one: one.end == "expired" and one.kind == "prepare",
)
def expired_and_delivered(t: Planting, one: Ended) -> Planted:
    t.deliver(one)
    t.contents.remove(one.outcome, one.letter)
    return named((one.origin, "contradicted"), sides=t.later_of(one))


@add("A control record is delivered", is_control("applied", "missed"))
def control_delivered(t: Planting, one: Ended) -> Planted:
    sent = t.deliver(one, one.outcome.timestamp_ms, one.record.timestamp_ms)
    t.contents.remove(one.outcome, sent)
    sent.topic = target_of("orders", t.contents.run)
    t.contents.add(sent)
    return named((one.origin, "contradicted"))


@add("A record with a successor is delivered, too", ended_as("rolled", "requeued"))
def went_on_and_delivered(t: Planting, one: Ended) -> Planted:
    t.deliver(one, max(one.outcome.timestamp_ms, one.wanted_ms))
    return named((one.origin, "contradicted"))


@add(
    "A record is delivered instead of requeued, and its successor exists",
    lambda _t, one: (
        one.end == "requeued"
        and one.successor is not None
        and one.kind == "record"
        and _names_topic(one)
    ),
)
def requeued_and_delivered_instead(t: Planting, one: Ended) -> Planted:
    """Deliver a requeued record. Its successor then has no predecessor."""
    t.deliver(one, max(one.outcome.timestamp_ms, one.wanted_ms))
    t.contents.remove(one.outcome)
    assert one.successor
    later = t.later_of(one)
    expected = (one.successor.place, "contradicted")
    return named(expected, sides=[(one.origin, "delivered"), *later])
