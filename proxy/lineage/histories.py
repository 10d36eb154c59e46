"""Trace: an ingress record with its hops, moves, replays and retries. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, Self

from proxy.dead_letters.letter import Origin, read_origin
from proxy.dead_letters.replay_plan import Mark
from proxy.errors import ProxyError
from proxy.protocol import headers as header
from proxy.protocol import outcomes
from proxy.protocol.body import Headers, delivery_of, last_header
from proxy.protocol.headers import text_of
from proxy.protocol.outcomes import read_outcome
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
        return last_header(self.headers, name)

    def text(self, name: str) -> str | None:
        raw = self.header(name)
        return None if raw is None else text_of(raw)

    def number(self, name: str) -> int | None:
        """Return the header as a number. None if it is no number, or longer than the proxy's
        numbers."""
        raw = self.header(name)
        return int(raw) if raw is not None and raw.isdigit() and len(raw) <= 18 else None

    def origin(self, name: str) -> Origin | None:
        return read_origin(self.text(name) or "")

    def without_value(self) -> Self:
        """Return a copy without the value. A trace keeps up to a thousand records, and their values
        may be large."""
        return replace(self, value=None)


class TimeSpan(NamedTuple):
    """The records of a topic with timestamps from `from_ms` to before `until_ms`."""

    topic: str
    from_ms: int | None = None
    until_ms: int | None = None
    partitions: tuple[int, ...] | None = None


Visit = Callable[[TracedRecord], bool]
"""A function that looks at a record. It returns True to end the search."""


class NotAllRead(ProxyError):
    """`bound`, the limit of time or records, was reached before all of `topics` was read."""

    def __init__(self, topics: Sequence[str], bound: str) -> None:
        self.topics = tuple(topics)
        super().__init__(f"{bound} before {', '.join(topics)} had been read.")


DELIVERY: Final = "delivery"
HALF_MESSAGE: Final = "half message"
REJECTED: Final = "rejected"


class Request(NamedTuple):
    """A record's request, read under today's settings. It tells in which topic and partition the
    record's delivery may lie."""

    kind: str
    """DELIVERY, HALF_MESSAGE, REJECTED, `cancel`, `recall`, `commit` or `rollback`."""
    target: str | None = None
    due_ms: int | None = None
    partition: int = -1
    """-1: the key decides."""
    key: bytes | None = None
    ident: bytes | None = None
    check_topic: str | None = None
    recalled: int | None = None

    @property
    def is_control(self) -> bool:
        """Whether the request acts on another record, so that its own record is not delivered."""
        return self.kind not in {DELIVERY, HALF_MESSAGE, REJECTED}

    @property
    def is_half(self) -> bool:
        return self.kind == HALF_MESSAGE


def read_request(record: TracedRecord, reader: RequestReader) -> Request:
    """Return a record's request. A rejected request keeps its target, because earlier settings may
    have accepted it."""
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
            one, ident = delivery_of(parsed.entry), parsed.ident
            kind, check_topic = DELIVERY, None
            if isinstance(parsed, Prepare):
                kind, check_topic = HALF_MESSAGE, parsed.check_topic
            return Request(
                kind, one.target, parsed.due_ms, one.partition, one.key, ident, check_topic
            )
        case Cancel(ident):
            return Request("cancel", ident=ident)
        case Recall(offset):
            return Request("recall", recalled=offset)
        case Decision(ident, what, _):
            return Request(what, ident=ident)
    return Request(REJECTED, record.text(header.TOPIC), ident=record.header(header.ID))


BY_ANOTHER: Final = frozenset({outcomes.CANCELLED, outcomes.ROLLED_BACK, outcomes.EXPIRED})
"""Outcomes that a control record may have caused. An outcome names the control record only if the
control record is a purge."""


class End(NamedTuple):
    """A record of the outcomes topic (docs/guide.md#outcomes)."""

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
        """Whether the ingress record was replaced by the move `next_origin`, with another due."""
        return self.what in {outcomes.REPLACED, outcomes.REQUEUED} and self.detail == outcomes.MOVED

    @property
    def is_hop(self) -> bool:
        """Whether a successor continues the ingress record."""
        return self.what in {outcomes.ROLLED, outcomes.REQUEUED} or self.is_move


def outcome_in(record: TracedRecord) -> End | None:
    """Return the outcome that a record of the outcomes topic holds, or None."""
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


INGESTED: Final = "ingested"
HOPPED: Final = "hopped"
REPLAYED: Final = "replayed"
RETRIED: Final = "retried"
AFTER_A_GAP: Final = "after a gap"


class Control(NamedTuple):
    """A cancel, recall, commit, rollback or expiry of a record."""

    applied: End
    """The outcome of the control record itself."""
    kind: str | None
    """None if the ingress has deleted the control record."""


@dataclass(slots=True)
class History:
    """One ingress record of a trace, with the records of other topics that name it as origin. It is
    filled step by step, and shown even if the time runs out before it is complete."""

    origin: Origin
    arrival: str
    """How the record came into the ingress: INGESTED, HOPPED, REPLAYED, RETRIED or AFTER_A_GAP."""
    record: TracedRecord | None = None
    """None if the ingress has deleted the record."""
    request: Request | None = None
    end: End | None = None
    delivery: TracedRecord | None = None
    letter: TracedRecord | None = None
    replay: Mark | None = None
    successor: Origin | None = None
    ended_by_it: End | None = None
    """If this is a control record: the outcome of the record that it ended."""
    unreadable: Origin | None = None
    """The place of the record's outcome, if the outcome cannot be parsed."""
    controls: list[Control] = field(default_factory=list)
    checks: list[TracedRecord] = field(default_factory=list)

    @property
    def ended_ms(self) -> int | None:
        last = self.end or self.delivery
        return None if last is None else last.timestamp_ms

    @property
    def is_half(self) -> bool:
        return self.request is not None and self.request.is_half


@dataclass(slots=True)
class Trace:
    """The histories of related ingress records, the first origin first."""

    named: Origin
    histories: list[History] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    is_whole: bool = True
    """Whether all topics could be read within the limits."""


def hop_from(record: TracedRecord) -> Origin | None:
    """Return the place of the record that `record` continues. The successor of a half message
    continues the half message's commit."""
    offset = record.number(header.HOP_FROM)
    return None if offset is None else record.place._replace(offset=offset)


def is_move(record: TracedRecord) -> bool:
    """Whether the record is a move, written to replace a pending record."""
    return record.header(header.HOP_FIRES) is not None


def is_successor_of(record: TracedRecord, origin: Origin, *, is_half: bool) -> bool:
    """Whether the proxy wrote this record to continue `origin`, but not as a move. The successor of
    a half message continues the commit, and has `origin` as its first origin."""
    if is_move(record):
        return False
    if is_half and record.header(header.HOP_FROM) is not None:
        return record.text(header.FIRST_ORIGIN) == str(origin)
    return hop_from(record) == origin


def predecessor_of(record: TracedRecord) -> Origin | None:
    """Return the place of the record before an ingress record: before a hop, a replay or a retry.
    For a retry, return the place of the delivery at which the consumer first failed. If the retry
    does not name this delivery, return the delivery's origin."""
    if record.header(header.HOP_FROM) is not None:
        return hop_from(record)
    is_retry = bool(record.header(header.RETRY_GROUP))
    if is_retry and (original := original_of(record)) is not None:
        return original
    first = record.origin(header.FIRST_ORIGIN)
    return record.origin(header.ORIGIN) if first is None and is_retry else first


def original_of(record: TracedRecord) -> Origin | None:
    """Return the place of the delivery that a retry names (docs/client.md#retries)."""
    topic = record.text(header.ORIGINAL_TOPIC)
    partition, offset = (
        record.number(header.ORIGINAL_PARTITION),
        record.number(header.ORIGINAL_OFFSET),
    )
    if topic is None or partition is None or offset is None:
        return None
    return Origin(topic, partition, offset)


def is_end_of(record: TracedRecord, origin: Origin, *, as_letter: bool) -> bool:
    """Whether a record is the delivery of `origin` or, with `as_letter`, its dead letter."""
    return (
        record.text(header.ORIGIN) == str(origin)
        and (record.header(header.ERROR) is not None) == as_letter
    )


def is_check_back(record: TracedRecord, ident: bytes) -> bool:
    """Whether a record is a check-back about the half message with this id."""
    is_question = (
        record.header(header.TRANSACTION) == header.CHECK_BACK
        and record.number(header.CHECK) is not None
    )
    return is_question and record.header(header.ID) == ident


def is_retry_of(record: TracedRecord, delivery: TracedRecord, group: bytes | None) -> bool:
    """Whether an ingress record retries a failed delivery. If the delivery was a retry, `group` is
    its group, else None. A consumer without the Python client may send the delivery back with its
    stamps, and without the headers that name the first delivery."""
    asking = record.header(header.RETRY_GROUP)
    if not asking or record.header(header.HOP_FROM) is not None or group not in {None, asking}:
        return False
    if (original := original_of(record)) is None:
        stamp = record.header(header.ORIGIN)
        return stamp is not None and stamp == delivery.header(header.ORIGIN)
    if record.header(header.FIRST_ORIGIN) is not None:
        return False  # a dead letter that was replayed
    first, failures = delivery.place, 0
    if group is not None:
        first = original_of(delivery) or first
        failures = delivery.number(header.RETRY_ATTEMPT) or 0
    return original == first and record.number(header.RETRY_ATTEMPT) == failures + 1


def is_about(end: End, origin: Origin, ident: bytes | None) -> bool:
    """Whether an outcome has this id and the partition of `origin`. If `ident` is None,
    outcomes without an id match, for example of recalls."""
    is_same = end.ident == (None if ident is None else text_of(ident))
    return is_same and end.origin[:2] == origin[:2]
