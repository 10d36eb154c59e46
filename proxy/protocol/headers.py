"""Names of the protocol's headers (docs/guide.md), and readers of their values."""

import re
from operator import methodcaller
from typing import Final, NamedTuple, TypeVar

PREFIX: Final = "timer-"

TOPIC: Final = "timer-topic"
DELIVER_AT: Final = "timer-deliver-at"
DELAY: Final = "timer-delay"
LEVEL: Final = "timer-level"
KEY: Final = "timer-key"
PARTITION: Final = "timer-partition"
ID: Final = "timer-id"
CANCEL: Final = "timer-cancel"
RECALL: Final = "timer-recall"
RETRY_GROUP: Final = "timer-retry-group"
ATTEMPT: Final = "timer-attempt"
TRANSACTION: Final = "timer-transaction"
CHECK_TOPIC: Final = "timer-check-topic"
CHECK_IMMUNITY: Final = "timer-check-immunity"
CHECK: Final = "timer-check"

PREPARE: Final = b"prepare"
COMMIT: Final = b"commit"
ROLLBACK: Final = b"rollback"
CHECK_BACK: Final = b"check"
EXPIRE: Final = b"expire"
"""Values of `timer-transaction`. Producers write the first three, the proxy the others."""

ORIGIN: Final = "timer-origin"
DUE: Final = "timer-due"
FIRST_ORIGIN: Final = "timer-first-origin"
ERROR: Final = "timer-error"
ERROR_DETAIL: Final = "timer-error-detail"

MOVED_FROM: Final = "moved-from"
"""On an imported record: cluster id and origin at the export. It is delivered like any header."""
INGRESS_KEY: Final = "timer-ingress-key"
"""The key that the ingress record had, if `timer-key` gave the delivery another key."""
UNREADABLE: Final = "timer-unreadable"
"""Never on the broker: this header stands for a record's headers if the client library cannot
decode them."""
SKIPPED: Final = bytes(bytearray(b"skipped"))
"""Value of `timer-unreadable` for a record in a batch that an operator skipped. It is compared by
identity, so it is built at run time. A constant with equal bytes might be the same object."""

HOP_FROM: Final = "timer-hop-from"
"""Private, so only the proxy writes it: offset of the entry that the record continues."""
HOP_NOT_BEFORE: Final = "timer-hop-not-before"
"""Private: epoch ms before which a requeued record is not published."""
UNTIL_RESUMED: Final = b"%d" % (10**15 - 1)
"""Value of `timer-hop-not-before` while the target is paused."""
HOP_RESUMED: Final = "timer-hop-resumed"
"""Private: epoch ms at which the pause that held the record back ended."""
HOP_ATTEMPT: Final = "timer-hop-attempt"
"""Private: the number of failed publish attempts."""
HOP_FIRST: Final = "timer-hop-first"
"""Private: offset at which the producer wrote the record, before all hops."""
HOP_FIRES: Final = "timer-hop-fires"
HOP_DUE: Final = "timer-hop-due"
"""Private, on a move: fire time and due (epoch ms) of the entry that the move replaces.
If this entry has ended before the move arrives, the move ends as `missed`."""
HOP_MAC: Final = "timer-hop-mac"
"""Private: proves that the proxy wrote the record. Always the last header."""
PURGE: Final = "timer-purge"
"""Private: pattern of the targets to purge."""
PURGE_FROM: Final = "timer-purge-from"
PURGE_TO: Final = "timer-purge-to"
"""Private: the first and last due (epoch ms) of the records to purge. Without these headers, the
due does not matter."""

ORIGINAL_TOPIC: Final = "retry-original-topic"
ORIGINAL_PARTITION: Final = "retry-original-partition"
ORIGINAL_OFFSET: Final = "retry-original-offset"
RETRY_ATTEMPT: Final = "retry-attempt"
RETRY_EXCEPTION: Final = "retry-exception"
"""Retry history, written by consumers only (docs/client.md#retries)."""

PLAIN_REQUESTS: Final = frozenset({TOPIC, DELIVER_AT, DELAY, LEVEL, KEY, PARTITION})
REQUESTS: Final = PLAIN_REQUESTS | {
    ID,
    CANCEL,
    RECALL,
    RETRY_GROUP,
    ATTEMPT,
    TRANSACTION,
    CHECK_TOPIC,
    CHECK_IMMUNITY,
}
STAMPS: Final = frozenset({ORIGIN, DUE, FIRST_ORIGIN, ERROR, ERROR_DETAIL, INGRESS_KEY, CHECK})
"""Headers that the proxy adds to deliveries, dead letters and check-backs. On an ingress record
they request nothing."""
MOVES: Final = frozenset({HOP_FIRES, HOP_DUE})
HOPS: Final = MOVES | {
    HOP_FROM,
    HOP_NOT_BEFORE,
    HOP_RESUMED,
    HOP_ATTEMPT,
    HOP_FIRST,
    HOP_MAC,
}
PURGES: Final = frozenset({PURGE, PURGE_FROM, PURGE_TO})
PLAIN: Final = PLAIN_REQUESTS | STAMPS - {FIRST_ORIGIN}
"""A record whose `timer-*` headers are all among these asks for a plain delivery."""
KNOWN: Final = REQUESTS | STAMPS | HOPS | PURGES


CACHE_ENTRIES: Final = 10_000
CACHED_BYTES: Final = 256
MOST_SHOWN_BYTES: Final = 244

T = TypeVar("T")

read_headers = methodcaller("headers")
"""Return a message's headers. Raises SystemError if a name is not UTF-8.
An ordinary call of `message.headers()` takes the interpreter's fast path. Then an unrelated later
call would raise the error."""


def text_of(raw: bytes | None) -> str:
    """Decode a value. Bytes that are not UTF-8 become escapes."""
    return "" if raw is None else raw.decode("utf-8", "backslashreplace")


def shown(raw: bytes | None) -> str:
    """Return the value in quotes, shortened if it is long."""
    text = text_of(None if raw is None else raw[:MOST_SHOWN_BYTES])
    return "null" if raw is None else repr(text if len(text) <= 60 else text[:57] + "...")


def remember(cache: dict[bytes | None, T], raw: bytes | None, answer: T) -> None:
    """Add an answer to a cache, unless `raw` is long. A cache with CACHE_ENTRIES is cleared
    first."""
    if len(cache) >= CACHE_ENTRIES:
        cache.clear()
    if raw is None or len(raw) <= CACHED_BYTES:
        cache[raw] = answer


TRACEPARENT: Final = "traceparent"
_FORM: Final = re.compile(
    r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII
)
_SAMPLED: Final = 0x01


class TraceParent(NamedTuple):
    """The producer's span in hexadecimal digits, and whether it is recorded."""

    trace_id: str
    span_id: str
    is_sampled: bool


def read_traceparent(raw: bytes | None) -> TraceParent | None:
    """Parse the header. Return None if it is invalid. Versions after 00 may have more fields."""
    found = _FORM.fullmatch((raw or b"").decode("ascii", "replace"))
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    is_known = version != "ff" and (version != "00" or more is None)
    if not (is_known and trace_id.strip("0") and span_id.strip("0")):
        return None
    return TraceParent(trace_id, span_id, bool(int(flags, 16) & _SAMPLED))
