"""A hop: a record that the proxy writes to the ingress again, to go on from there.

Rule 10 of docs/exactly-once.md. `dispatcher` says which records hop, and why; the class `Hop` is
in `scheduling.batch`.
"""

from collections.abc import Mapping
from typing import Final

from proxy.protocol.body import Delivery, IngressPartition
from proxy.protocol.headers import (
    CHECK_IMMUNITY,
    CHECK_TOPIC,
    DELAY,
    DELIVER_AT,
    FIRST_ORIGIN,
    HOP_ATTEMPT,
    HOP_DUE,
    HOP_FIRES,
    HOP_FIRST,
    HOP_FROM,
    HOP_MAC,
    HOP_NOT_BEFORE,
    HOP_RESUMED,
    ID,
    LEVEL,
    TRANSACTION,
)
from proxy.protocol.outcomes import Outcome, as_ingested
from proxy.protocol.proofs import receipt_name
from proxy.scheduling.batch import AuxiliaryRecord, Hop, Place

NOT_CARRIED_ON: Final = frozenset(
    {
        DELIVER_AT,
        DELAY,
        LEVEL,
        TRANSACTION,
        CHECK_TOPIC,
        CHECK_IMMUNITY,
        HOP_FROM,
        HOP_NOT_BEFORE,
        HOP_RESUMED,
        HOP_ATTEMPT,
        HOP_FIRST,
        HOP_FIRES,
        HOP_DUE,
        HOP_MAC,
        FIRST_ORIGIN,
    }
)
"""Headers that the successor has anew or no more: it asks for an absolute time, and a half message
that was committed is an ordinary record."""


def successor(ingress: IngressPartition, hop: Hop) -> AuxiliaryRecord:
    """The record that goes on; to its own partition, with the key it had there."""
    delivery = hop.delivery
    not_before_ms, resumed_ms = hop.not_before_ms, hop.resumed_ms
    if not_before_ms is None:
        not_before_ms = _number(delivery.header(HOP_NOT_BEFORE))
        resumed_ms = _number(delivery.header(HOP_RESUMED))
    numbers = {
        DELIVER_AT: delivery.due_ms,
        HOP_NOT_BEFORE: not_before_ms,
        HOP_RESUMED: resumed_ms,
        HOP_ATTEMPT: hop.failures or _number(delivery.header(HOP_ATTEMPT)),
    }
    return _rewritten(ingress, delivery, numbers)


def moved(
    ingress: IngressPartition,
    delivery: Delivery,
    deliver_at_ms: int,
    place: Place | None = None,
) -> AuxiliaryRecord:
    """The record that is to take the place of an entry that waits: with another due, or with a
    place in a queue."""
    numbers = {
        DELIVER_AT: deliver_at_ms,
        HOP_NOT_BEFORE: place and place.not_before_ms,
        HOP_RESUMED: place and place.resumed_ms,
        HOP_ATTEMPT: _number(delivery.header(HOP_ATTEMPT)),
        HOP_FIRES: delivery.fires_ms,
        HOP_DUE: delivery.due_ms,
    }
    return _rewritten(ingress, delivery, numbers)


def is_move(record: AuxiliaryRecord) -> bool:
    """Whether it was made by `moved`."""
    return any(name == HOP_FIRES for name, _ in record.headers)


def _rewritten(
    ingress: IngressPartition, delivery: Delivery, numbers: Mapping[str, int | None]
) -> AuxiliaryRecord:
    """What goes on from the entry, with these numbers as headers, where they are any."""
    key, headers = as_ingested(delivery)
    kept = [header for header in headers if header[0] not in NOT_CARRIED_ON]
    first = delivery.header(FIRST_ORIGIN) or ingress.origin(delivery.offset).encode()
    numbers = {
        **numbers,
        HOP_FROM: delivery.entry_offset,
        HOP_FIRST: _first_offset(delivery),
    }
    added = [(name, str(n).encode()) for name, n in numbers.items() if n is not None]
    return AuxiliaryRecord(
        delivery.offset,
        ingress.topic,
        ingress.number,
        key,
        delivery.value,
        [*kept, *added, (FIRST_ORIGIN, first)],
    )


def named_hop(hop: Hop) -> tuple[bytes, int]:
    """Under which name the shard waits for the successor, and the offset that it continues."""
    delivery = hop.delivery
    return delivery.header(ID) or receipt_name(_first_offset(delivery)), delivery.entry_offset


def outcome_of(hop: Hop) -> Outcome:
    """How the record ended that the successor goes on from."""
    delivery = hop.delivery
    return Outcome(delivery.offset, hop.what, delivery.due_ms, delivery.header(ID), hop.detail)


def failures(hop_attempt: bytes | None) -> int:
    """How often publishing the record has failed, by its header."""
    return _number(hop_attempt) or 0


def _first_offset(delivery: Delivery) -> int:
    first = _number(delivery.header(HOP_FIRST))
    return delivery.offset if first is None else first


def _number(raw: bytes | None) -> int | None:
    return None if raw is None else int(raw)
