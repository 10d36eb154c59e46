"""A record that ends in the dead-letter topic (docs/guide.md#what-does-not-arrive)."""

from __future__ import annotations

from typing import NamedTuple

from proxy.records.body import Headers
from proxy.records.delivery import Delivery
from proxy.records.headers import ERROR, ERROR_DETAIL, ID, INGRESS_KEY, KEY, ORIGIN, UNREADABLE
from proxy.records.outcome import DEAD_LETTERED
from proxy.records.rejection import Rejection


class DeadLetter(NamedTuple):
    """A record that ends in the dead-letter topic, as it was in the ingress, and why."""

    offset: int
    due_ms: int | None
    reason: Rejection
    key: bytes | None
    value: bytes | None
    headers: Headers
    ident: bytes | None = None
    outcome: str = DEAD_LETTERED


def dead_letter_of(delivery: Delivery, reason: Rejection) -> DeadLetter:
    """What cannot be delivered, turned back into the record it was in the ingress."""
    key, headers = as_ingested(delivery)
    return DeadLetter(
        delivery.offset,
        delivery.due_ms,
        reason,
        key,
        delivery.value,
        headers,
        delivery.header(ID),
    )


def as_ingested(delivery: Delivery) -> tuple[bytes | None, Headers]:
    """Key and headers that the record had in the ingress."""
    names = [name for name, _ in delivery.headers]
    if KEY not in names:
        return delivery.key, delivery.headers
    index = len(names) - 1 - names[::-1].index(INGRESS_KEY)
    kept = [*delivery.headers[:index], *delivery.headers[index + 1 :]]
    return delivery.headers[index][1], kept


def dead_letter_headers(letter: DeadLetter, origin: str) -> Headers:
    """All headers of the record, and why it ended here."""
    added = [
        (ERROR, letter.reason.code.encode()),
        (ERROR_DETAIL, letter.reason.detail.encode("utf-8", "backslashreplace")),
        (ORIGIN, origin.encode()),
    ]
    names = {UNREADABLE, *(name for name, _ in added)}
    return [header for header in letter.headers if header[0] not in names] + added
