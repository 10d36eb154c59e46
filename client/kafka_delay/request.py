"""Requests: ingress records with plain headers (docs/guide.md).

An id is the key of its ingress records, so all requests of an id share a partition.
"""

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias, TypedDict, Unpack

from kafka_delay import protocol
from kafka_delay.errors import RequestRefused
from kafka_delay.protocol import ID_BYTES, MAX_DIGITS, PREFIX, TOPIC_NAME_RULE

Data: TypeAlias = str | bytes | None
"""Text is encoded as UTF-8. None is Kafka's null."""
Headers: TypeAlias = Mapping[str, Data] | Iterable[tuple[str, Data]]
WireHeaders: TypeAlias = list[tuple[str, bytes | None]]
Delay: TypeAlias = timedelta | str
"""A timedelta, or text such as `30s`, `500ms`, `2h`, `PT30S`."""
Instant: TypeAlias = datetime | int | str
"""An aware datetime, epoch milliseconds, or RFC 3339 text with a zone."""

BY_KEY: Final = -1
"""In place of a partition: the producer chooses the partition by the record's key."""
UNKNOWN: Final = -1
"""An offset that the broker did not report."""
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND: Final = timedelta(milliseconds=1)
YEAR_MS: Final = 366 * 86_400_000
ORIGIN: Final = re.compile(r"(?P<topic>[^/]+)/(?P<partition>[0-9]{1,10})/(?P<offset>[0-9]{1,18})")
NUMBER: Final = re.compile(r"[-+]?\d+(\.\d+)?", re.ASCII)
CACHED: Final = 1_000


class Options(TypedDict, total=False):
    """Keyword arguments for sending a record. At most one of the times may be given."""

    delay: Delay | None
    """The time from the record's timestamp in the ingress until it is due."""
    deliver_at: Instant | None
    """The time at which the record is due."""
    level: int | None
    """A delay level. Level 1 is the shortest."""
    partition: int | None
    """The target's partition. Without it the key chooses the partition, as in Java."""


class SendOptions(Options, total=False):
    """The arguments of `Options`, and an id for cancels and replacements."""

    id: str | bytes | None
    """1 to 256 bytes of UTF-8."""


@dataclass(frozen=True, slots=True)
class DelayedRecord:
    """A record and its time, with the fields of `SendOptions`."""

    topic: str
    """The target topic."""
    value: Data = None
    key: Data = None
    headers: Headers | None = None
    delay: Delay | None = None
    deliver_at: Instant | None = None
    level: int | None = None
    id: str | bytes | None = None
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """An ingress record to write."""

    key: bytes | None
    value: bytes | None
    headers: WireHeaders
    partition: int = BY_KEY

    @property
    def size_bytes(self) -> int:
        """Return the bytes of key, value and headers."""
        headers_bytes = sum(len(name) + len(value or b"") for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers_bytes


class Receipt(NamedTuple):
    """The place of a stored record in the ingress."""

    topic: str
    partition: int
    offset: int
    """The record's offset. -1 if the record was sent again and confirmed without an offset."""
    timestamp_ms: int
    """The timestamp from which delays count, in epoch milliseconds, or -1 if there is none."""
    key: bytes | None = None
    """The record's key in the ingress. A recall needs it as proof."""

    @property
    def origin(self) -> str:
        """Return `topic/partition/offset`, as in the header `timer-origin` and in outcomes."""
        return f"{self.topic}/{self.partition}/{self.offset}"


def delayed(
    topic: str,
    value: Data = None,
    key: Data = None,
    headers: Headers | None = None,
    **options: Unpack[SendOptions],
) -> tuple[bytes | None, bytes | None, WireHeaders]:
    """Return key, value and headers of the ingress record, for a producer of any library.

    Takes the arguments of `DelayProducer.send`.
    With an `id` the producer must partition keys as Java does (murmur2).
    Raises RequestRefused.
    """
    request = request_of(DelayedRecord(topic, value, key, headers, **options))
    return request.key, request.value, request.headers


def request_of(record: DelayedRecord) -> Request:
    """Return the request to deliver a record. Raises RequestRefused."""
    if not isinstance(record, DelayedRecord):
        raise RequestRefused(f"{record!r} is no DelayedRecord: write DelayedRecord(topic, value)")
    asked: WireHeaders = [(protocol.TOPIC, _topic(record.topic))]
    asked += time_headers(record.delay, record.deliver_at, record.level)
    if record.partition is not None:
        wanted = "a number from 0; leave it out to let the key decide"
        number = _whole(record.partition, "the partition", wanted, below=2**31)
        asked.append((protocol.PARTITION, b"%d" % number))
    key = _bytes(record.key, "key")
    if record.id is not None:
        ident = id_bytes(record.id)
        asked += [(protocol.ID, ident), (protocol.KEY, key)]
        key = ident
    return Request(key, _bytes(record.value, "value"), asked + _own_headers(record.headers))


def cancellation(ident: str | bytes) -> Request:
    """Return the request to cancel the pending record of an id. Raises RequestRefused."""
    key = id_bytes(ident)
    return Request(key, None, [(protocol.CANCEL, key)])


def recall(
    receipt: Receipt | str, ingress: str, key: Data = None, ident: str | bytes | None = None
) -> Request:
    """Return the request to recall the record of a receipt or origin. Raises RequestRefused."""
    origin: object = getattr(receipt, "origin", receipt)
    found = ORIGIN.fullmatch(origin) if isinstance(origin, str) else None
    if found is None or found["topic"] != ingress:
        raise RequestRefused(
            f"{receipt!r} is no receipt of a record in {ingress}: give the receipt that send "
            "returned, or its origin (topic/partition/offset)"
        )
    proof = getattr(receipt, "key", None) if key is None else _bytes(key, "key")
    asked: WireHeaders = [(protocol.RECALL, found[0].encode())]
    if ident is not None:
        asked.append((protocol.ID, id_bytes(ident)))
    return Request(proof, None, asked, int(found["partition"]))


def id_bytes(ident: str | bytes) -> bytes:
    """Return an id as bytes. Raises RequestRefused."""
    raw = _bytes(ident, "id")
    if raw is None or not 1 <= len(raw) <= ID_BYTES:
        found = "null" if raw is None else f"{len(raw)} bytes long"
        raise RequestRefused(f"the id is {found}: it must have 1 to {ID_BYTES} bytes of UTF-8")
    try:
        raw.decode()
    except UnicodeDecodeError:
        raise RequestRefused(f"the id {raw!r} is not UTF-8: ids are text") from None
    return raw


def time_headers(delay: Delay | None, deliver_at: Instant | None, level: int | None) -> WireHeaders:
    """Return the header of the given time, or none if no time is given.

    Raises RequestRefused for two times.
    """
    given = {"delay": delay, "deliver_at": deliver_at, "level": level}
    named = [name for name, value in given.items() if value is not None]
    if len(named) > 1:
        raise RequestRefused(f"{' and '.join(named)} contradict each other: give one of them")
    if delay is not None:
        return [(protocol.DELAY, delay_text(delay, "delay").encode())]
    if deliver_at is not None:
        return [(protocol.DELIVER_AT, _instant_text(deliver_at).encode())]
    if level is not None:
        return [
            (protocol.LEVEL, str(_whole(level, "level", "a delay level from 0 (at once)")).encode())
        ]
    return []


def delay_text(delay: object, name: str) -> str:
    """Return a delay as the header's text.

    Raises RequestRefused, also for a bare number.
    """
    if isinstance(delay, timedelta):
        delay_ms = -(-delay // MILLISECOND)
        return str(_whole(delay_ms, name, "a length of time, 0 or longer"))
    is_number = isinstance(delay, int | float) and not isinstance(delay, bool)
    if is_number or (isinstance(delay, str) and NUMBER.fullmatch(delay)):
        raise RequestRefused(
            f"{name} is {delay!r}, a number without a unit: write '{delay}s' for seconds or "
            f"'{delay}ms' for milliseconds, or give a timedelta"
        )
    if not isinstance(delay, str):
        raise RequestRefused(f"{name} is {delay!r}: give a timedelta, or text such as '30s'")
    try:
        protocol.parse_delay_ms(delay)
    except ValueError:
        raise RequestRefused(
            f"{name} is {delay!r}: write a number with a unit (500ms 30s 5m 2h 7d), an ISO 8601 "
            "duration without years or months (PT30S), or give a timedelta"
        ) from None
    return delay


def _instant_text(moment: Instant) -> str:
    if isinstance(moment, datetime):
        if moment.utcoffset() is None:
            raise RequestRefused(
                f"deliver_at is {moment!r}, a datetime without a zone: write datetime.now(UTC) "
                "or moment.astimezone(), which mean the same on each machine"
            )
        moment_ms = -(-(moment - EPOCH) // MILLISECOND)
        return str(_whole(moment_ms, "deliver_at", "a time after 1970"))
    if not isinstance(moment, str):
        wanted = "after 1970: an aware datetime, epoch milliseconds, or RFC 3339 text"
        return str(_refuse_long_past(_whole(moment, "deliver_at", wanted)))
    try:
        instant_ms = protocol.parse_instant_ms(moment)
    except ValueError as error:
        raise RequestRefused(str(error)) from None
    _whole(instant_ms, "deliver_at", "a time after 1970")
    if NUMBER.fullmatch(moment):
        _refuse_long_past(instant_ms)
    return moment


def _refuse_long_past(instant_ms: int) -> int:
    """Return `instant_ms`.

    Raises RequestRefused for a time over a year ago, because the caller may have meant seconds.
    """
    if instant_ms < time.time() * 1000 - YEAR_MS:
        in_words = (EPOCH + timedelta(milliseconds=instant_ms)).isoformat(timespec="milliseconds")
        raise RequestRefused(
            f"deliver_at is {instant_ms}. In epoch milliseconds that is {in_words}, more than a "
            "year ago. If it means seconds, multiply it by 1000. For a time that long ago give an "
            "aware datetime, or RFC 3339 text"
        )
    return instant_ms


def _whole(number: object, name: str, wanted: str, below: int = 10**MAX_DIGITS) -> int:
    if isinstance(number, int) and not isinstance(number, bool) and 0 <= number < below:
        return number
    raise RequestRefused(f"{name} is {number!r}: it must be {wanted}")


@lru_cache(CACHED)
def _topic(topic: object) -> bytes:
    if not isinstance(topic, str) or not protocol.is_legal_topic(topic):
        raise RequestRefused(f"the topic is {topic!r}: {TOPIC_NAME_RULE}")
    return topic.encode()


def _own_headers(headers: Headers | None) -> WireHeaders:
    if headers is None:
        return []
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return [_header(pair) for pair in pairs]


def _header(pair: object) -> tuple[str, bytes | None]:
    if not isinstance(pair, tuple | list) or len(pair) != 2 or not isinstance(pair[0], str):
        raise RequestRefused(
            f"{pair!r} is no header: give a dict, or pairs of a str and a str, bytes or None"
        )
    name, value = pair
    if name.startswith(PREFIX):
        raise RequestRefused(
            f"the header {name!r} begins with {PREFIX}, so the proxy would remove it: use the "
            "arguments of send, or another name"
        )
    _bytes(name, "a header's name")
    return name, value if isinstance(value, bytes) else _bytes(value, f"the header {name}")


def _bytes(data: object, name: str) -> bytes | None:
    if isinstance(data, str):
        try:
            return data.encode()
        except UnicodeEncodeError as error:
            raise RequestRefused(f"{name} cannot be written as UTF-8: {error.reason}") from None
    if data is None or isinstance(data, bytes):
        return data
    raise RequestRefused(f"{name} is a {type(data).__name__}: it must be str, bytes or None")
