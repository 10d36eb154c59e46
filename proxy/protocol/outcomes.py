"""Outcomes, dead letters and their reasons."""

import json
from dataclasses import dataclass
from pathlib import PurePath
from traceback import extract_tb
from typing import Any, Final, NamedTuple

from proxy.protocol.body import Delivery, Headers, IngressPartition
from proxy.protocol.bounded_json import JsonRefused, read_object
from proxy.protocol.headers import ERROR, ERROR_DETAIL, ID, INGRESS_KEY, KEY, ORIGIN, UNREADABLE


@dataclass(frozen=True, slots=True)
class Rejection:
    """The reason for a dead letter: a code of `REASONS` and a sentence."""

    code: str
    detail: str


RECORD_UNREADABLE: Final = "record-unreadable"
REASONS: Final = {
    RECORD_UNREADABLE: "the client library cannot read the record's batch, and an operator has "
    "skipped it",
    "header-unreadable": "the record's headers cannot be read, or headers of two schedulers "
    "contradict each other",
    "header-unknown": "a header begins with timer- but is not part of the protocol",
    "header-unsupported": "a request that is not served: a recurring schedule of another "
    "scheduler, or a kind that the setting requests.serve omits",
    "target-missing": "no timer-topic header",
    "target-illegal": "timer-topic, timer-check-topic or a retry topic is not a legal topic name",
    "target-refused": "the target is a topic of the proxy, internal, reserved, denied or not "
    "allowed, or belongs to a consumer group that is not served",
    "time-unreadable": "a header with a time cannot be read, or a delay has no timestamp to "
    "start from",
    "level-unknown": "timer-level is not a whole number",
    "delay-too-long": "the due is more than max_delay after the record's timestamp",
    "time-past": "the due is more than max_past before the record's timestamp",
    "id-bad": "timer-id or timer-cancel is empty or too long, or a required id is missing",
    "recall-bad": "timer-recall is not the origin of an earlier record in this ingress partition",
    "retry-bad": "timer-attempt is not a whole number, or comes without timer-retry-group",
    "transaction-bad": "timer-transaction is none of prepare, commit and rollback",
    "hop-bad": "a timer-hop- header cannot be read. Only the proxy writes such headers",
    "purge-bad": "the proxy did not write this timer-purge header, and only the proxy may write it",
    "partition-bad": "timer-partition is not a number, or the target has no such partition",
    "target-unknown": "the target topic does not exist on the broker, after all retries",
    "partition-unavailable": "the target partition has no leader, or fewer replicas in sync than "
    "min.insync.replicas, after all retries",
    "too-large": "the target topic does not take records of this size",
    "not-authorised": "the proxy may not write to the target topic, after all retries",
    "publish-failed": "the broker refused the record for another reason; the detail says which",
    "body-gone": "the ingress had deleted the record before it could be read back",
    "transaction-expired": "a half message that nobody committed or rolled back after all checks",
    "overdue": "a rule for overdue records makes dead letters of records this late",
    "defect": "the proxy failed at this record because of a defect",
}
"""All codes of `timer-error`. `target-unknown` to `overdue` are found when the record fires."""


def unforeseen(error: Exception) -> Rejection:
    """Return the reason for a record at which the proxy itself failed.

    A version without the defect reads such records in another way, so it needs another
    `policy.PROTOCOL` (docs/exactly-once.md, rule 3).
    """
    if isinstance(error, MemoryError):
        raise error
    at = extract_tb(error.__traceback__)[-1]
    return Rejection(
        "defect",
        "the proxy failed at this record, which is a defect of the proxy: please report it with "
        f"{type(error).__name__} in {PurePath(at.filename).name}:{at.lineno}: {error}"[:500],
    )


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
"""All names that outcome records can carry (docs/guide.md#outcomes)."""


MOVED: Final = "moved"
"""Detail of the outcome of a record that a move replaced."""
PURGED_BY: Final = "purged by "
"""Beginning of the detail of a purged record's outcome. The purge's origin follows."""

_encoded = json.JSONEncoder(separators=(",", ":")).encode


class Outcome(NamedTuple):
    """The end of an ingress record that is not delivered."""

    offset: int
    what: str
    due_ms: int | None
    ident: bytes | None
    detail: str = ""
    next_offset: int | None = None
    """Offset of the record that replaces this one, if known."""
    target: str | None = None
    """The target, if known. It is not written to the outcomes topic."""

    def to_json(self, ingress: IngressPartition) -> bytes:
        """Return the value of the outcome record. Its key is the origin."""
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
    """Return the outcome in a record's value, or None."""
    try:
        found = read_object(value)
    except JsonRefused:
        return None
    is_one = all(isinstance(found.get(name), str) for name in ("origin", "outcome"))
    return found if is_one else None


class DeadLetter(NamedTuple):
    """An ingress record for the dead-letter topic, and the reason."""

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
    """Return the dead letter of a delivery, with its key and headers in the ingress."""
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
    """Return key and headers as they were in the ingress."""
    names = [name for name, _ in delivery.headers]
    if KEY not in names:
        return delivery.key, delivery.headers
    index = len(names) - 1 - names[::-1].index(INGRESS_KEY)
    kept = [*delivery.headers[:index], *delivery.headers[index + 1 :]]
    return delivery.headers[index][1], kept


def dead_letter_headers(letter: DeadLetter, origin: str) -> Headers:
    """Return the record's headers followed by reason and origin."""
    added = [
        (ERROR, letter.reason.code.encode()),
        (ERROR_DETAIL, letter.reason.detail.encode("utf-8", "backslashreplace")),
        (ORIGIN, origin.encode()),
    ]
    names = {UNREADABLE, *(name for name, _ in added)}
    return [header for header in letter.headers if header[0] not in names] + added
