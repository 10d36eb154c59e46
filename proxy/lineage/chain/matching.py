"""Which records belong together: hops, retries, check-backs, outcomes. By their headers alone."""

from typing import Final, NamedTuple

from proxy.client.retries.received import (
    ATTEMPT,
    ORIGINAL_OFFSET,
    ORIGINAL_PARTITION,
    ORIGINAL_TOPIC,
)
from proxy.dead_letters.letters.letter import Origin, read_origin
from proxy.lineage.chain.traced_record import TracedRecord
from proxy.protocol.headers import (
    CHECK,
    CHECK_BACK,
    ERROR,
    FIRST_ORIGIN,
    HOP_FIRES,
    HOP_FROM,
    ID,
    ORIGIN,
    RETRY_GROUP,
    TRANSACTION,
    text_of,
)
from proxy.protocol.outcomes import (
    CANCELLED,
    EXPIRED,
    MOVED,
    REPLACED,
    REQUEUED,
    ROLLED,
    ROLLED_BACK,
    read_outcome,
)

HOPS: Final = frozenset({ROLLED, REQUEUED})
BY_ANOTHER: Final = frozenset({CANCELLED, ROLLED_BACK, EXPIRED})
"""Outcomes behind which there can be a control record, which they do not name."""


class End(NamedTuple):
    """An outcome as it lies in its topic (docs/guide.md#outcomes)."""

    place: Origin
    timestamp_ms: int
    origin: Origin
    what: str
    due_ms: int | None
    ident: str | None
    detail: str
    next_origin: Origin | None

    @property
    def is_move(self) -> bool:
        """Whether the next origin has taken its place, with another due."""
        return self.what in {REPLACED, REQUEUED} and self.detail == MOVED

    @property
    def is_hop(self) -> bool:
        """Whether a successor goes on."""
        return self.what in HOPS or self.is_move


def outcome_in(record: TracedRecord) -> End | None:
    """The outcome that a record of the outcome topic holds."""
    found = read_outcome(record.value)
    origin = read_origin(found["origin"]) if found else None
    if found is None or origin is None:
        return None
    due_ms, ident = found.get("due"), found.get("id")
    return End(
        record.place,
        record.timestamp_ms,
        origin,
        found["outcome"],
        due_ms if isinstance(due_ms, int) else None,
        ident if isinstance(ident, str) else None,
        str(found.get("detail") or ""),
        read_origin(str(found.get("next_origin") or "")),
    )


def hop_from(record: TracedRecord) -> Origin | None:
    """The ingress record, or the commit of one, that this one goes on from."""
    offset = record.number(HOP_FROM)
    return None if offset is None else record.place._replace(offset=offset)


def is_move(record: TracedRecord) -> bool:
    """Whether it is to take the place of another one, if that still waits."""
    return record.header(HOP_FIRES) is not None


def is_successor_of(record: TracedRecord, origin: Origin, *, is_half: bool) -> bool:
    """Whether the proxy wrote this to go on from `origin`; what was moved says itself where to.

    Of a half message (`is_half`) it goes on from the commit, and names `origin` as the first.
    """
    if is_move(record):
        return False
    if is_half and record.header(HOP_FROM) is not None:
        return record.text(FIRST_ORIGIN) == str(origin)
    return hop_from(record) == origin


def came_from(record: TracedRecord) -> Origin | None:
    """The place of the record that this ingress record was made of; None: of no other one.

    Of a retry that is the consumer's first record, which lies in another topic.
    """
    if record.header(HOP_FROM) is not None:
        return hop_from(record)
    if (original := original_of(record)) is not None and record.header(RETRY_GROUP):
        return original
    stamps = [FIRST_ORIGIN, ORIGIN] if record.header(RETRY_GROUP) else [FIRST_ORIGIN]
    named = (read_origin(record.text(name) or "") for name in stamps)
    return next((origin for origin in named if origin is not None), None)


def original_of(record: TracedRecord) -> Origin | None:
    """The consumer's record of which this is a retry (docs/client.md#retries)."""
    topic = record.text(ORIGINAL_TOPIC)
    partition, offset = record.number(ORIGINAL_PARTITION), record.number(ORIGINAL_OFFSET)
    if topic is None or partition is None or offset is None:
        return None
    return Origin(topic, partition, offset)


def is_delivery_of(record: TracedRecord, origin: Origin) -> bool:
    """Whether a record of a target is what was delivered of the ingress record at `origin`."""
    return record.text(ORIGIN) == str(origin) and record.header(ERROR) is None


def is_letter_of(record: TracedRecord, origin: Origin) -> bool:
    """Whether a record of the dead-letter topic is that of the ingress record at `origin`."""
    return record.text(ORIGIN) == str(origin) and record.header(ERROR) is not None


def is_check_back(record: TracedRecord, ident: bytes) -> bool:
    """Whether it asks what became of the half message with this id."""
    is_question = record.header(TRANSACTION) == CHECK_BACK and record.number(CHECK) is not None
    return is_question and record.header(ID) == ident


def is_retry_of(record: TracedRecord, delivery: TracedRecord, group: bytes | None) -> bool:
    """Whether an ingress record asks for a delivery again that a consumer could not process.

    `group`: the consumer group for which it was delivered, None where that was no retry. A consumer
    without this project's client may send the record back with the stamps that it came with.
    """
    asking = record.header(RETRY_GROUP)
    if not asking or record.header(HOP_FROM) is not None or group not in {None, asking}:
        return False
    if (original := original_of(record)) is None:
        stamp = record.header(ORIGIN)
        return stamp is not None and stamp == delivery.header(ORIGIN)
    if record.header(FIRST_ORIGIN) is not None:
        return False  # a dead letter that was replayed
    first, failures = delivery.place, 0
    if group is not None:
        first = original_of(delivery) or first
        failures = delivery.number(ATTEMPT) or 0
    return original == first and record.number(ATTEMPT) == failures + 1


def is_about(end: End, origin: Origin, ident: bytes | None) -> bool:
    """Whether an outcome is of a record with this id, in the ingress partition of `origin`; without
    one recalls are."""
    is_same = end.ident == (None if ident is None else text_of(ident))
    return is_same and end.origin[:2] == origin[:2]
