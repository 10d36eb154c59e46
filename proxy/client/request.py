"""What a caller asks for, as the ingress record that says it in plain headers.

Everything here is pure; the headers: docs/guide.md#rules-for-all-headers. A record with an id is
keyed by the id, and the target's key goes into `timer-key`: so all records and cancels of one id
meet in one partition of the ingress, from whatever language they come.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias

from proxy.client.errors import RequestRefused
from proxy.client.receipt import Receipt
from proxy.client.when import Delay, Instant, time_headers
from proxy.protocol.headers import CANCEL, ID, KEY, PARTITION, PREFIX, RECALL, TOPIC
from proxy.protocol.policy import TOPIC_NAME_RULE, is_legal_topic

Data: TypeAlias = str | bytes | None
"""Text is sent as UTF-8; None is Kafka's null."""
Headers: TypeAlias = Mapping[str, Data] | Iterable[tuple[str, Data]]
WireHeaders: TypeAlias = list[tuple[str, bytes | None]]

ID_BYTES: Final = 256
KNOWN_TOPICS: Final = 1_000
LAST_PARTITION: Final = 2**31 - 1
BY_KEY: Final = -1
ORIGIN: Final = re.compile(r"(?P<topic>[^/]+)/(?P<partition>[0-9]{1,10})/(?P<offset>[0-9]{1,18})")


@dataclass(frozen=True, slots=True)
class DelayedRecord:
    """A record and when it should appear; at most one of `delay`, `deliver_at` and `level`.

    `delay` is a timedelta or text (`30s`); `deliver_at` an aware datetime, epoch milliseconds or
    RFC 3339 text. With an `id` it can be cancelled and replaced. `partition` is
    the target's.
    """

    topic: str
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
    """An ingress record, ready to be written. partition: BY_KEY, or where it has to go."""

    key: bytes | None
    value: bytes | None
    headers: WireHeaders
    partition: int = BY_KEY

    @property
    def size_bytes(self) -> int:
        """About what it takes in a queue."""
        headers_bytes = sum(len(name) + len(value or b"") for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers_bytes


def delayed(record: DelayedRecord) -> Request:
    """The request that makes the record appear. Raises RequestRefused."""
    if not isinstance(record, DelayedRecord):
        raise RequestRefused(f"{record!r} is no DelayedRecord: write DelayedRecord(topic, value)")
    asked: WireHeaders = [(TOPIC, topic_bytes(record.topic))]
    asked += time_headers(record.delay, record.deliver_at, record.level)
    if record.partition is not None:
        asked.append((PARTITION, _partition(record.partition)))
    key = wire(record.key, "key")
    if record.id is not None:
        ident = id_bytes(record.id)
        asked += [(ID, ident), (KEY, key)]
        key = ident
    return Request(key, wire(record.value, "value"), asked + user_headers(record.headers))


def cancellation(ident: str | bytes) -> Request:
    """The request that the pending record of that id is not delivered. Raises RequestRefused."""
    key = id_bytes(ident)
    return Request(key, None, [(CANCEL, key)])


def recall(
    receipt: Receipt | str, ingress: str, key: Data = None, ident: str | bytes | None = None
) -> Request:
    """The request that the record of this receipt, or origin, is not delivered. Raises
    RequestRefused.

    `key`, `ident`: what the record has in the ingress; the key is the receipt's unless it is given.
    """
    origin: object = getattr(receipt, "origin", receipt)
    found = ORIGIN.fullmatch(origin) if isinstance(origin, str) else None
    if not isinstance(origin, str) or found is None or found["topic"] != ingress:
        raise RequestRefused(
            f"{receipt!r} is no receipt of a record in {ingress}: give what send returned, or its "
            "origin, topic/partition/offset"
        )
    proof = getattr(receipt, "key", None) if key is None else wire(key, "key")
    asked: WireHeaders = [(RECALL, origin.encode())]
    if ident is not None:
        asked.append((ID, id_bytes(ident)))
    return Request(proof, None, asked, int(found["partition"]))


def id_bytes(ident: str | bytes) -> bytes:
    """An id on the wire: 1 to 256 bytes of UTF-8. Raises RequestRefused."""
    raw = wire(ident, "id")
    if raw is None or not 1 <= len(raw) <= ID_BYTES:
        found = "null" if raw is None else f"{len(raw)} bytes long"
        raise RequestRefused(f"the id is {found}: it must have 1 to {ID_BYTES} bytes of UTF-8")
    if raw is ident:
        _need_text(raw)
    return raw


def _need_text(raw: bytes) -> None:
    try:
        raw.decode()
    except UnicodeDecodeError:
        raise RequestRefused(f"the id {raw!r} is not UTF-8: ids are text") from None


def user_headers(headers: Headers | None) -> WireHeaders:
    """A caller's own headers on the wire, in order. Raises RequestRefused."""
    if headers is None:
        return []
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return [_header(pair) for pair in pairs]


def wire(data: object, name: str) -> bytes | None:
    """Text as UTF-8, bytes and null as they are; `name` is the argument to blame."""
    if isinstance(data, str):
        try:
            return data.encode()
        except UnicodeEncodeError as error:
            raise RequestRefused(f"{name} cannot be written as UTF-8: {error.reason}") from None
    if data is None or isinstance(data, bytes):
        return data
    found = type(data).__name__
    raise RequestRefused(f"{name} is a {found}: it must be str, bytes or None")


def _header(pair: object) -> tuple[str, bytes | None]:
    if not isinstance(pair, tuple | list) or len(pair) != 2 or not isinstance(pair[0], str):
        raise RequestRefused(
            f"{pair!r} is no header: give a dict, or pairs of a str and a str, bytes or None"
        )
    name, value = pair
    if name.startswith(PREFIX):
        raise RequestRefused(
            f"the header {name!r} begins with {PREFIX}, which belongs to the proxy and would not "
            "reach the target: use the arguments of send, or another name"
        )
    wire(name, "a header's name")
    return name, value if isinstance(value, bytes) else wire(value, f"the header {name}")


@lru_cache(KNOWN_TOPICS)
def topic_bytes(topic: object) -> bytes:
    """A topic's name on the wire. Raises RequestRefused."""
    if not isinstance(topic, str) or not is_legal_topic(topic):
        raise RequestRefused(f"the topic is {topic!r}: {TOPIC_NAME_RULE}")
    return topic.encode()


def _partition(partition: object) -> bytes:
    is_number = isinstance(partition, int) and not isinstance(partition, bool)
    if not is_number or not 0 <= partition <= LAST_PARTITION:  # type: ignore[operator]
        raise RequestRefused(
            f"the partition is {partition!r}: it must be a number from 0; leave it out to let the "
            "key decide"
        )
    return str(partition).encode()
