"""How a record ends other than by delivery: outcomes, dead letters, and the reasons for them."""

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
    """Why a record goes to the dead letters: a code of `REASONS` and a sentence."""

    code: str
    detail: str


RECORD_UNREADABLE: Final = "record-unreadable"
REASONS: Final = {
    RECORD_UNREADABLE: "the client library cannot read the record's batch, and an operator has "
    "skipped it",
    "header-unreadable": "the record's headers cannot be read, or those of another scheduler "
    "contradict each other",
    "header-unknown": "a header begins with timer- but is none of the protocol's",
    "header-unsupported": "a request that is not served: of another scheduler (a recurring "
    "schedule), or one that the setting requests.serve leaves out",
    "target-missing": "no timer-topic header",
    "target-illegal": "timer-topic, timer-check-topic or a retry topic is no legal topic name",
    "target-refused": "the target is the proxy's own, internal, reserved, denied or not allowed, "
    "or belongs to a consumer group that is not served",
    "time-unreadable": "a header with a time cannot be read, or no timestamp to add to",
    "level-unknown": "timer-level is not a whole number",
    "delay-too-long": "the due time lies beyond max_delay",
    "time-past": "the due time lies further before the record's timestamp than max_past",
    "id-bad": "timer-id or timer-cancel is empty or too long, or an id is missing where one is due",
    "recall-bad": "timer-recall is no origin of an earlier record in this partition of the ingress",
    "retry-bad": "timer-attempt is not a whole number, or comes without timer-retry-group",
    "transaction-bad": "timer-transaction is none of prepare, commit and rollback",
    "hop-bad": "a timer-hop- header, which the proxy alone writes, cannot be read",
    "purge-bad": "a timer-purge header, which the proxy alone writes, and it did not",
    "partition-bad": "timer-partition is not a number, or the target has no such partition",
    "target-unknown": "the target topic does not exist on the broker, after all retries",
    "partition-unavailable": "the target partition has no leader, or fewer replicas in sync than "
    "min.insync.replicas, after all retries",
    "too-large": "the target topic does not take records of this size",
    "not-authorised": "the proxy may not write to the target topic, after all retries",
    "publish-failed": "the broker refused the record for another reason; the detail says which",
    "body-gone": "the ingress had deleted the record before it could be read back",
    "transaction-expired": "a half message that nobody committed or rolled back after all checks",
    "overdue": "the setting release.overdue has records this late set aside",
    "defect": "the proxy itself failed at this record, in a way that nobody foresaw",
}
"""Every code that `timer-error` can carry. The eight before the last, and a partition beyond the
target's, are found when the record fires, a defect at any time, the others when it is ingested."""


def unforeseen(error: Exception) -> Rejection:
    """Why a record ends at which the proxy itself failed so; raises what is no fault of the record.

    A later version that reads such a record otherwise needs another `policy.PROTOCOL`: a replay
    would not come to the same end (docs/exactly-once.md, rule 3).
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
