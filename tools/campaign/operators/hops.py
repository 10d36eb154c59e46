"""Faults in records that the proxy rewrote, as a roll or a requeue."""

from __future__ import annotations

from tools.campaign.contents import DELIVERED, Ended, Held
from tools.campaign.operators.operator import Operators, Planted, Planting, named
from tools.campaign.scene import LAST, OWN, SIGNER

HOPS = Operators()
add = HOPS.add


def _sign(hop: Held) -> None:
    """Sign a changed hop as the proxy would, so that its signature is valid despite the fault."""
    headers = [one for one in hop.headers if one[0] != "timer-hop-mac"]
    hop.headers = list(SIGNER.signed(hop.partition, hop.key, hop.value, headers))


def _next(t: Planting, one: Ended) -> Ended | None:
    return t.places.get((one.partition, one.successor.offset)) if one.successor else None


def _goes_on_to_its_end(t: Planting, one: Ended) -> bool:
    after = _next(t, one)
    is_hop = one.end in {"rolled", "requeued"} and one.ident is None and one.kind == "record"
    return is_hop and after is not None and after.end == DELIVERED


def _went_on(t: Planting, one: Ended) -> Ended:
    after = _next(t, one)
    assert after
    return after


@add("A successor is lost", _goes_on_to_its_end)
def successor_lost(t: Planting, one: Ended) -> Planted:
    after = _went_on(t, one)
    t.contents.remove(after.record, after.delivery)
    return named((one.origin, "missing"), sides=[(after.origin, "none")])


@add("A successor was delivered, and its ingress record is lost", _goes_on_to_its_end)
def successor_aborted(t: Planting, one: Ended) -> Planted:
    after = _went_on(t, one)
    t.contents.remove(after.record)
    return named((one.origin, "missing"), (after.origin, "orphaned"))


@add("A record has two successors, and both are delivered", _goes_on_to_its_end)
def successor_twice(t: Planting, one: Ended) -> Planted:
    after = _went_on(t, one)
    copy = t.contents.add(_unread(t, after.record.copy()))
    delivery = t.later(after.delivery)
    delivery.since = LAST
    delivery.set_header("timer-origin", copy.place.encode())
    _read_to(t, copy)
    return named((one.origin, "duplicated"), sides=[(copy.place, "delivered contradicted")])


def _unread(t: Planting, copy: Held) -> Held:
    """Remove records that the proxy never read, so that it reads the copy next."""
    next_offset = t.contents.moments[LAST].committed[copy.partition].next_offset or 0
    gone = [o for o in t.contents.ingress if o.partition == copy.partition]
    t.contents.remove(*[o for o in gone if o.offset >= next_offset])
    copy.since = LAST
    return copy


def _read_to(t: Planting, last: Held) -> None:
    t.contents.extend_log(last.partition, last.offset + 1)


def _is_last_read(t: Planting, one: Ended) -> bool:
    ends = t.contents.moments[LAST]
    return ends.log_ends[one.partition] == ends.committed[one.partition].next_offset


HOPS.all[-1] = HOPS.all[-1]._replace(
    where=lambda t, one: _goes_on_to_its_end(t, one) and _is_last_read(t, one)
)


@add("A successor has another value, and is delivered with it", _goes_on_to_its_end)
def successor_value_changed(t: Planting, one: Ended) -> Planted:
    after = _went_on(t, one)
    after.record.value = after.delivery.value = b"another value"
    _sign(after.record)
    return named((one.origin, "altered"))


@add("A successor has another header, and is delivered with it", _goes_on_to_its_end)
def successor_headers_changed(t: Planting, one: Ended) -> Planted:
    after = _went_on(t, one)
    for held in (after.record, after.delivery):
        held.headers.insert(0, ("added", b"x"))
    _sign(after.record)
    return named((one.origin, "altered"))


@add("A successor has another due, and is delivered with it", _goes_on_to_its_end)
def successor_due_changed(t: Planting, one: Ended) -> Planted:
    after = _went_on(t, one)
    due = b"%d" % (after.due_ms - 1)
    after.record.set_header("timer-deliver-at", due)
    after.delivery.set_header("timer-due", due)
    _sign(after.record)
    return named((one.origin, "altered"))


@add("A successor claims too many attempts", _goes_on_to_its_end)
def successor_attempts_claimed(t: Planting, one: Ended) -> Planted:
    after = _went_on(t, one)
    headers = [header for header in after.record.headers if header[0] != "timer-hop-attempt"]
    after.record.headers = [*headers, ("timer-hop-attempt", b"15")]
    _sign(after.record)
    return named((one.origin, "altered"))


@add("A successor is for another topic, and is delivered there", _goes_on_to_its_end)
def successor_topic_changed(t: Planting, one: Ended) -> Planted:
    after = _went_on(t, one)
    moved = after.delivery.copy()
    t.contents.remove(after.delivery)
    moved.topic = f"elsewhere-{t.contents.run}"
    t.contents.add(moved)
    after.record.headers = [h for h in after.record.headers if h[0] != "timer-topic"]
    after.record.headers.insert(0, ("timer-topic", moved.topic.encode()))
    _sign(after.record)
    purges = [o for o in t.records if o.kind == "purge" and o.partition == one.partition]
    sides = [(after.origin, "contradicted")] if purges else []
    return named((one.origin, "altered"), sides=sides)


@add("A successor has another key, and is delivered with it", _goes_on_to_its_end)
def successor_key_changed(t: Planting, one: Ended) -> Planted:
    after = _went_on(t, one)
    moved = after.delivery
    moved.key = (moved.key or b"") + b"!"
    after.record.headers = [h for h in after.record.headers if h[0] not in _PLACED]
    after.record.headers[:0] = [
        ("timer-key", moved.key),
        ("timer-partition", b"%d" % moved.partition),
    ]
    _sign(after.record)
    return named((one.origin, "altered"))


_PLACED = ("timer-key", "timer-partition")


@add("A successor has another first origin, and is delivered with it", _goes_on_to_its_end)
def successor_first_origin_changed(t: Planting, one: Ended) -> Planted:
    after = _went_on(t, one)
    wrong = f"{OWN.ingress}/{one.partition}/7777".encode()
    after.record.set_header("timer-first-origin", wrong)
    after.delivery.set_header("timer-first-origin", wrong)
    _sign(after.record)
    return named((one.origin, "altered"))


@add("A successor was changed without the signing key, and delivered", _goes_on_to_its_end)
def successor_forged(t: Planting, one: Ended) -> Planted:
    after = _went_on(t, one)
    after.record.value = after.delivery.value = b"forged"
    return named((after.origin, "contradicted"), (one.origin, "missing"))


@add("A successor names another predecessor", _goes_on_to_its_end)
def successor_of_another(t: Planting, one: Ended) -> Planted:
    after = _went_on(t, one)
    wrong = _stranger(t, one)
    after.record.set_header("timer-hop-from", b"%d" % wrong)
    _sign(after.record)
    return named((one.origin, "missing"), (after.origin, "contradicted"))


def _stranger(t: Planting, one: Ended) -> int:
    found = [
        other.record.offset
        for other in t.records
        if other.partition == one.partition
        and other.record.offset < one.record.offset
        and other.end in {DELIVERED, "cancelled", "replaced"}
    ]
    return found[-1] if found else 0


HOPS.all[-1] = HOPS.all[-1]._replace(
    where=lambda t, one: _goes_on_to_its_end(t, one) and _stranger(t, one) > 0
)


def _was_overtaken(t: Planting, one: Ended) -> bool:
    """Return whether the record ended on arrival, because a newer record or cancel with its id came
    while it was being rewritten."""
    before = t.predecessor(one)
    between = before is not None and any(
        other.partition == one.partition
        and before.record.offset < other.record.offset < one.record.offset
        and other.ident == one.ident
        and (other.kind == "cancel" or other.hop_from is None)
        and other.kind in {"cancel", "record", "prepare"}
        for other in t.records
    )
    is_first = t.next_with_id(one) is None
    return between and is_first and one.ident is not None and one.end in {"cancelled", "replaced"}


@add("A record is delivered, though it was cancelled or replaced in mid-hop", _was_overtaken)
def overtaken_and_delivered(t: Planting, one: Ended) -> Planted:
    t.contents.remove(one.outcome)
    t.deliver(one, max(one.outcome.timestamp_ms, one.wanted_ms))
    cancels = [
        (o.origin, "contradicted")
        for o in t.records
        if o.partition == one.partition and o.kind == "cancel" and o.ident == one.ident
    ]
    return named((one.origin, "contradicted missing"), sides=cancels)
