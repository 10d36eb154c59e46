"""The records of a trace, and rules that relate them by their headers. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, Protocol, Self

from proxy.dead_letters.letter import Origin, read_origin
from proxy.dead_letters.replay_plan import Mark
from proxy.errors import ProxyError
from proxy.protocol.body import Headers, delivery_of, last_header
from proxy.protocol.headers import (
    CHECK,
    CHECK_BACK,
    ERROR,
    FIRST_ORIGIN,
    HOP_FIRES,
    HOP_FROM,
    ID,
    ORIGIN,
    ORIGINAL_OFFSET,
    ORIGINAL_PARTITION,
    ORIGINAL_TOPIC,
    RETRY_ATTEMPT,
    RETRY_GROUP,
    TOPIC,
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
from proxy.protocol.parsed import Cancel, Decision, Prepare, Recall, Scheduled
from proxy.protocol.request_reader import RequestReader


@dataclass(frozen=True, slots=True)
class TracedRecord:
    """A committed record of any topic."""

    place: Origin
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers

    def header(self, name: str) -> bytes | None:
        """Return the last header of that name."""
        return last_header(self.headers, name)

    def text(self, name: str) -> str | None:
        raw = self.header(name)
        return None if raw is None else text_of(raw)

    def number(self, name: str) -> int | None:
        """Return the header as a number. None if it is too long to be ours."""
        raw = self.header(name)
        return int(raw) if raw is not None and raw.isdigit() and len(raw) <= 18 else None

    def origin(self, name: str) -> Origin | None:
        """Return the place that a header names."""
        return read_origin(self.text(name) or "")

    def without_value(self) -> Self:
        """Return a copy to keep. A trace may have a thousand records, and values can be large."""
        return replace(self, value=None)


class TimeSpan(NamedTuple):
    """Records of a topic with timestamps from `from_ms` to before `until_ms`. None: no limit."""

    topic: str
    from_ms: int | None = None
    until_ms: int | None = None
    partitions: tuple[int, ...] | None = None
    """None: all partitions."""


Visit = Callable[[TracedRecord], bool]
"""Looks at a record. Returns True to end the search."""


class NotAllRead(ProxyError):
    """The `bound` of time or of records was reached before `topics` were read to the end."""

    def __init__(self, topics: Sequence[str], bound: str) -> None:
        self.topics = tuple(topics)
        super().__init__(f"{bound} before {', '.join(topics)} had been read.")


class Topics(Protocol):
    """The topics of a trace. Raises NotAllRead, and a broker's refusal as a ProxyError."""

    def partitions_of(self, topic: str) -> int:
        """Return the number of partitions, 0 for a missing topic."""

    def offsets(self, topic: str, partition: int) -> range:
        """Return the offsets of committed records."""

    def at(self, place: Origin) -> TracedRecord | None:
        """Return the record at a place. None if nothing lies there."""

    def search(self, spans: Sequence[TimeSpan], visit: Visit) -> None:
        """Read the spans in parallel until `visit` returns True. May show a record twice."""

    def unread(self) -> list[str]:
        """Return sentences about topics that were left out."""


# The request of an ingress record.

DELIVERY: Final = "delivery"
HALF_MESSAGE: Final = "half message"
REJECTED: Final = "rejected"


class Asked(NamedTuple):
    """A record's request under today's settings. It tells where to look for the end."""

    kind: str
    """DELIVERY, HALF_MESSAGE, REJECTED, `cancel`, `recall`, `commit` or `rollback`."""
    target: str | None = None
    due_ms: int | None = None
    partition: int = -1
    """The target's partition. -1: the key decides."""
    key: bytes | None = None
    """The key at the target."""
    ident: bytes | None = None
    check_topic: str | None = None
    recalled: int | None = None
    """The offset that a recall names."""

    @property
    def is_control(self) -> bool:
        """Whether it acts on another record and is not delivered."""
        return self.kind not in {DELIVERY, HALF_MESSAGE, REJECTED}

    @property
    def is_half(self) -> bool:
        return self.kind == HALF_MESSAGE


def read_asked(record: TracedRecord, reader: RequestReader) -> Asked:
    """Return the request of a record.

    A rejected one keeps its target, because earlier settings may have accepted it.
    """
    place = record.place
    parsed = reader.read(
        record.headers,
        record.key,
        record.value,
        record.timestamp_ms,
        place.partition,
        place.offset,
    )
    match parsed:
        case Scheduled() | Prepare():
            return _asked_by_entry(parsed)
        case Cancel(ident):
            return Asked("cancel", ident=ident)
        case Recall(offset):
            return Asked("recall", recalled=offset)
        case Decision(ident, what, _):
            return Asked(what, ident=ident)
    return Asked(REJECTED, record.text(TOPIC), ident=record.header(ID))


def _asked_by_entry(parsed: Scheduled | Prepare) -> Asked:
    kind, check_topic = DELIVERY, None
    if isinstance(parsed, Prepare):
        kind, check_topic = HALF_MESSAGE, parsed.check_topic
    one, ident = delivery_of(parsed.entry), parsed.ident
    return Asked(kind, one.target, parsed.due_ms, one.partition, one.key, ident, check_topic)


# Outcomes.

BY_ANOTHER: Final = frozenset({CANCELLED, ROLLED_BACK, EXPIRED})
"""Outcomes that a control record may have caused. They do not name it."""


class End(NamedTuple):
    """An outcome in its topic (docs/guide.md#outcomes)."""

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
        """Whether `next_origin` took its place with another due time."""
        return self.what in {REPLACED, REQUEUED} and self.detail == MOVED

    @property
    def is_hop(self) -> bool:
        """Whether a successor continues it."""
        return self.what in {ROLLED, REQUEUED} or self.is_move


def outcome_in(record: TracedRecord) -> End | None:
    """Return the outcome in a record of the outcomes topic."""
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


# Links of the chain.

INGESTED: Final = "ingested"
HOPPED: Final = "hopped"
REPLAYED: Final = "replayed"
RETRIED: Final = "retried"
AFTER_A_GAP: Final = "after a gap"


class Control(NamedTuple):
    """A cancel, recall, commit, rollback or expiry that was applied to a record."""

    end: End
    kind: str | None
    """None if the ingress has deleted the control record."""


@dataclass(slots=True)
class Link:
    """One ingress record of the chain. It is filled stepwise, and shown if the time runs out."""

    origin: Origin
    arrival: str
    """INGESTED, HOPPED, REPLAYED, RETRIED or AFTER_A_GAP."""
    record: TracedRecord | None = None
    """None if the ingress has deleted it."""
    asked: Asked | None = None
    end: End | None = None
    delivery: TracedRecord | None = None
    letter: TracedRecord | None = None
    replay: Mark | None = None
    successor: Origin | None = None
    ended: End | None = None
    """The outcome of the record that a control record ended."""
    unreadable: Origin | None = None
    """The place of an unreadable outcome."""
    controls: list[Control] = field(default_factory=list)
    checks: list[TracedRecord] = field(default_factory=list)

    @property
    def ended_ms(self) -> int | None:
        """The time of its end, if known."""
        last = self.end or self.delivery
        return None if last is None else last.timestamp_ms

    @property
    def is_half(self) -> bool:
        return self.asked is not None and self.asked.is_half


@dataclass(slots=True)
class Trace:
    """The whole chain, the first origin first."""

    asked: Origin
    links: list[Link] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    """Sentences about gaps."""
    is_whole: bool = True
    """Whether the time allowed was enough."""


# Relations between records.


def hop_from(record: TracedRecord) -> Origin | None:
    """Return the ingress record that this one continues, or the commit of that record."""
    offset = record.number(HOP_FROM)
    return None if offset is None else record.place._replace(offset=offset)


def is_move(record: TracedRecord) -> bool:
    """Whether it was written to replace a pending record."""
    return record.header(HOP_FIRES) is not None


def is_successor_of(record: TracedRecord, origin: Origin, *, is_half: bool) -> bool:
    """Whether the proxy wrote this record to continue `origin`. Moves name their successor.

    A half message's successor names `origin` as its first origin, and continues the commit.
    """
    if is_move(record):
        return False
    if is_half and record.header(HOP_FROM) is not None:
        return record.text(FIRST_ORIGIN) == str(origin)
    return hop_from(record) == origin


def came_from(record: TracedRecord) -> Origin | None:
    """Return the origin of this ingress record, if it has one.

    A retry comes from the consumer's record, which lies in another topic.
    """
    if record.header(HOP_FROM) is not None:
        return hop_from(record)
    is_retry = bool(record.header(RETRY_GROUP))
    if is_retry and (original := original_of(record)) is not None:
        return original
    first = record.origin(FIRST_ORIGIN)
    return record.origin(ORIGIN) if first is None and is_retry else first


def original_of(record: TracedRecord) -> Origin | None:
    """Return the consumer's record that this retry names (docs/client.md#retries)."""
    topic = record.text(ORIGINAL_TOPIC)
    partition, offset = record.number(ORIGINAL_PARTITION), record.number(ORIGINAL_OFFSET)
    if topic is None or partition is None or offset is None:
        return None
    return Origin(topic, partition, offset)


def is_delivery_of(record: TracedRecord, origin: Origin) -> bool:
    """Whether a record of a target was delivered from the ingress record at `origin`."""
    return record.text(ORIGIN) == str(origin) and record.header(ERROR) is None


def is_letter_of(record: TracedRecord, origin: Origin) -> bool:
    """Whether a dead letter was made from the ingress record at `origin`."""
    return record.text(ORIGIN) == str(origin) and record.header(ERROR) is not None


def is_check_back(record: TracedRecord, ident: bytes) -> bool:
    """Whether it asks for a decision about the half message with this id."""
    is_question = record.header(TRANSACTION) == CHECK_BACK and record.number(CHECK) is not None
    return is_question and record.header(ID) == ident


def is_retry_of(record: TracedRecord, delivery: TracedRecord, group: bytes | None) -> bool:
    """Whether an ingress record retries a delivery that a consumer could not process.

    `group` is the delivery's consumer group if it was a retry. A consumer without our client may
    return the record with its stamps.
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
        failures = delivery.number(RETRY_ATTEMPT) or 0
    return original == first and record.number(RETRY_ATTEMPT) == failures + 1


def is_about(end: End, origin: Origin, ident: bytes | None) -> bool:
    """Whether an outcome has this id, and lies in the ingress partition of `origin`.

    Outcomes of recalls have no id.
    """
    is_same = end.ident == (None if ident is None else text_of(ident))
    return is_same and end.origin[:2] == origin[:2]
