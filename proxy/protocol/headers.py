"""The protocol's headers (docs/guide.md): their names, and how their values are read and shown."""

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
"""Values of `timer-transaction`: the first three are a producer's, the others the proxy's own."""

ORIGIN: Final = "timer-origin"
DUE: Final = "timer-due"
FIRST_ORIGIN: Final = "timer-first-origin"
ERROR: Final = "timer-error"
ERROR_DETAIL: Final = "timer-error-detail"

INGRESS_KEY: Final = "timer-ingress-key"
"""The proxy's own, on what it stores and on dead letters: the ingress record's key, where
`timer-key` gave another for the target."""
UNREADABLE: Final = "timer-unreadable"
"""The proxy's own, in memory: stands in place of headers that the client library cannot decode."""
SKIPPED: Final = bytes(bytearray(b"skipped"))
"""In that header: an operator has skipped the record. This very object counts: it is made at run
time, so that no value that was fetched is the same one."""

HOP_FROM: Final = "timer-hop-from"
"""Private, on what the proxy itself writes to the ingress: offset of the entry it goes on from."""
HOP_NOT_BEFORE: Final = "timer-hop-not-before"
"""Private: epoch ms before which a re-queued record is not tried again."""
PARKED: Final = b"%d" % (10**15 - 1)
"""In that header: its target is paused, and it is not tried again before that is over."""
HOP_RESUMED: Final = "timer-hop-resumed"
"""Private: epoch ms of the end of the pause that held the record back. The time in the header above
is its place in the queue in which that pause's records go."""
HOP_ATTEMPT: Final = "timer-hop-attempt"
"""Private: how often publishing the record has failed."""
HOP_FIRST: Final = "timer-hop-first"
"""Private: offset of the record that its producer wrote, from which all hops have come."""
HOP_FIRES: Final = "timer-hop-fires"
HOP_DUE: Final = "timer-hop-due"
"""Private, on a record that is moved: firing time and due (epoch ms) of the entry that it goes on
from, which has not ended: it ends as this record arrives, or this one does where it has by then."""
HOP_MAC: Final = "timer-hop-mac"
"""Private: shows that the proxy wrote the record; always the last header of one."""
PURGE: Final = "timer-purge"
"""Private, on a record of its own: the pattern of targets for which nothing that waits is to be
delivered."""
PURGE_FROM: Final = "timer-purge-from"
PURGE_TO: Final = "timer-purge-to"
"""Private: epoch ms of the first and the last due of what is purged; without them any due."""

ORIGINAL_TOPIC: Final = "retry-original-topic"
ORIGINAL_PARTITION: Final = "retry-original-partition"
ORIGINAL_OFFSET: Final = "retry-original-offset"
RETRY_ATTEMPT: Final = "retry-attempt"
RETRY_EXCEPTION: Final = "retry-exception"
"""The story of a retry, written by consumers (docs/client.md#retries). The proxy only reads it."""

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
"""A delivered or dead-lettered record sent in again carries these; they ask for nothing."""
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
"""A record with no other headers of ours is one to be delivered, and no more."""
KNOWN: Final = REQUESTS | STAMPS | HOPS | PURGES


CACHE_ENTRIES: Final = 10_000
CACHED_BYTES: Final = 256
MOST_SHOWN_BYTES: Final = 244
"""More than 60 characters, however many bytes each has."""

T = TypeVar("T")

read_headers = methodcaller("headers")
"""Asks a message for its headers; fails where a header's name is not UTF-8. Not a plain call: the
interpreter's fast path for those lets the failure go unseen, to surface in whatever is called next.
"""


def text_of(raw: bytes | None) -> str:
    """What was written; bytes that are not UTF-8 as escapes."""
    return "" if raw is None else raw.decode("utf-8", "backslashreplace")


def shown(raw: bytes | None) -> str:
    """What was written, in quotes, cut where it is long."""
    text = text_of(None if raw is None else raw[:MOST_SHOWN_BYTES])
    return "null" if raw is None else repr(text if len(text) <= 60 else text[:57] + "...")


def remember(cache: dict[bytes | None, T], raw: bytes | None, answer: T) -> None:
    """A bounded cache: full, it starts anew, and the next records fill it with what is in use."""
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
    """The producer's span, in hexadecimal digits, and whether it is recorded."""

    trace_id: str
    span_id: str
    is_sampled: bool


def read_traceparent(raw: bytes | None) -> TraceParent | None:
    """None where the header is missing or not a valid one.

    A later version than 00 may have more behind the four fields.
    """
    found = _FORM.fullmatch((raw or b"").decode("ascii", "replace"))
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    is_known = version != "ff" and (version != "00" or more is None)
    if not (is_known and trace_id.strip("0") and span_id.strip("0")):
        return None
    return TraceParent(trace_id, span_id, bool(int(flags, 16) & _SAMPLED))
