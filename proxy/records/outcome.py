"""How a record ends other than by delivery: outcomes, all their names, and dead letters."""

import json
from typing import Any, Final, NamedTuple

from proxy.records.body import Headers
from proxy.records.bounded_json import JsonRefused, read_object
from proxy.records.delivery import Delivery
from proxy.records.headers import ERROR, ERROR_DETAIL, ID, INGRESS_KEY, KEY, ORIGIN, UNREADABLE
from proxy.records.message import IngressPartition
from proxy.records.rejection import Rejection

CANCELLED: Final = "cancelled"
REPLACED: Final = "replaced"
DEAD_LETTERED: Final = "dead-lettered"
ROLLED: Final = "rolled"
REQUEUED: Final = "requeued"
ROLLED_BACK: Final = "rolled-back"
EXPIRED: Final = "expired"
APPLIED: Final = "applied"
MISSED: Final = "missed"

OUTCOMES: Final = (
    CANCELLED,
    REPLACED,
    DEAD_LETTERED,
    ROLLED,
    REQUEUED,
    ROLLED_BACK,
    EXPIRED,
    APPLIED,
    MISSED,
)
"""Every name that an outcome record can carry (docs/guide.md#outcomes)."""


MOVED: Final = "moved"
"""The detail of a record whose place another one has taken, with another due."""
PURGED_BY: Final = "purged by "
"""What the detail of a record begins with that a purge has ended; its origin follows."""

_encoded = json.JSONEncoder(separators=(",", ":")).encode


class Outcome(NamedTuple):
    """How the ingress record at `offset` ended, other than by delivery. what: one of `OUTCOMES`.

    `next_offset`: of the record that goes on in its place, where that is known. target: where the
    record was to go, where that is known; it is not written.
    """

    offset: int
    what: str
    due_ms: int | None
    ident: bytes | None
    detail: str = ""
    next_offset: int | None = None
    target: str | None = None

    def to_json(self, ingress: IngressPartition) -> bytes:
        """The value of the outcome record; its key is the origin."""
        fields = {
            "origin": ingress.origin(self.offset),
            "outcome": self.what,
            "due": self.due_ms,
            "id": None if self.ident is None else self.ident.decode("utf-8", "backslashreplace"),
            "detail": self.detail,
        }
        if self.next_offset is not None:
            fields["next_origin"] = ingress.origin(self.next_offset)
        return _encoded(fields).encode()


def read_outcome(value: bytes | None) -> dict[str, Any] | None:
    """The outcome that a record's value holds, None without one (docs/guide.md#outcomes)."""
    try:
        found = read_object(value)
    except JsonRefused:
        return None
    is_one = all(isinstance(found.get(name), str) for name in ("origin", "outcome"))
    return found if is_one else None


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
    target: str | None = None


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
        target=delivery.target,
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
