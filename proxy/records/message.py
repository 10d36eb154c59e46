"""A fetched record, and the shape in which one leaves the proxy as a dead letter (DESIGN 2)."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from proxy.records.body import Delivery, Headers
from proxy.records.headers import ERROR, ERROR_DETAIL, ID, INGRESS_KEY, KEY, ORIGIN, UNREADABLE
from proxy.records.rejection import Rejection


class Message(Protocol):
    """What the core asks of a fetched record; confluent_kafka.Message serves it."""

    def partition(self) -> int: ...
    def offset(self) -> int: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def headers(self) -> Headers | None: ...
    def timestamp(self) -> tuple[int, int]: ...
    def error(self) -> object | None: ...


class DeadLetter(NamedTuple):
    """A record that ends in the dead-letter topic, as it was in the ingress, and why."""

    offset: int
    due_ms: int | None
    reason: Rejection
    key: bytes | None
    value: bytes | None
    headers: Headers
    ident: bytes | None = None
    outcome: str = "dead-lettered"


def dead_entry(delivery: Delivery, reason: Rejection) -> DeadLetter:
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
    place = len(names) - 1 - names[::-1].index(INGRESS_KEY)
    kept = [*delivery.headers[:place], *delivery.headers[place + 1 :]]
    return delivery.headers[place][1], kept


def dead_letter_headers(letter: DeadLetter, origin: str) -> Headers:
    """All headers of the record, and why it ended here."""
    said = [
        (ERROR, letter.reason.code.encode()),
        (ERROR_DETAIL, letter.reason.detail.encode("utf-8", "backslashreplace")),
        (ORIGIN, origin.encode()),
    ]
    names = {UNREADABLE, *(name for name, _ in said)}
    return [header for header in letter.headers if header[0] not in names] + said
