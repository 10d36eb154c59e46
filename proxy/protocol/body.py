"""An ingress record as it is fetched, as storage keeps it, and as it is delivered.

A body is packed where the record is parsed, while the record is in the CPU's caches. It is unpacked
where the record is produced. With `bodies: kafka` storage keeps a stub that says how many bytes
the body has.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, Protocol, TypeAlias, cast

import msgpack

from proxy.protocol.headers import (
    DELAY,
    DELIVER_AT,
    HOP_NOT_BEFORE,
    HOP_RESUMED,
    LEVEL,
    PARKED,
    TOPIC,
)
from storage.store import Entry

Headers: TypeAlias = list[tuple[str, bytes | None]]
Content: TypeAlias = tuple[int, bytes | None, bytes | None, Headers]
"""(partition or -1, key, value, headers)."""
Kept: TypeAlias = tuple[int, bytes | None, bytes | None, Headers | bytes | None]
"""The same as it is kept: with the shape of its headers in place of a -1 (`header_shapes`) what is
kept of the time that they ask for stands for them."""

BY_KEY: Final = -1
BODY_FORMAT: Final = 4
"""Version of bodies on disk: a folder with bodies of another one is rebuilt."""
NEGATIVE: Final = 0xE0
"""From this byte on a small number below 0 is packed: no partition is named."""
CONTENT_ALONE: Final = 0x94
WITH_PURPOSE: Final = 0x95
"""First bytes of a body: an array of four or, with a purpose before them, of five. A stub begins
otherwise."""
GONE: Final = 2**31
"""Partition of an entry whose record is no longer in the ingress. No request can name it."""
GONE_BODY: Final = cast(bytes, msgpack.packb((GONE, None, None, [])))
LARGEST_BATCH_BYTES: Final = 2**31 - 1


class Purpose(NamedTuple):
    """What an entry is for, where that is more than to be delivered at its time.

    due_ms: what the record asked for. origin: offset of the ingress record to be delivered.
    wanted_ms: when it may be delivered at the soonest: at or after due_ms. An entry that fires
    before that is rewritten instead.
    """

    due_ms: int
    origin: int
    wanted_ms: int


Pack: TypeAlias = Callable[[tuple[object, ...]], bytes]
"""Packs a content, or (purpose, *content)."""


def last_header(headers: Headers, name: str) -> bytes | None:
    """Of a header that is repeated the last one counts."""
    return next((raw for found, raw in reversed(headers) if found == name), None)


def may_have_header(body: bytes, name: str) -> bool:
    """Return whether a body may have this header. Searches the bytes and unpacks nothing."""
    return name.encode() in body


def packer() -> Pack:
    """A function that packs; not to be shared by threads."""
    return cast(Pack, msgpack.Packer(autoreset=True).pack)


def unpacked(entries: Iterable[Entry]) -> Iterator[Kept]:
    """What is kept of entries' bodies, one after the other; none may have a purpose."""
    unpacker = msgpack.Unpacker(use_list=False, max_buffer_size=LARGEST_BATCH_BYTES)
    unpacker.feed(b"".join([entry[3] for entry in entries]))
    return cast(Iterator[Kept], unpacker)


def need_dispatch(entries: Iterable[Entry]) -> bool:
    """Return whether one is more than a delivery by key: it names a partition, or has a purpose.

    Other bodies begin with -1 or a shape, in one byte behind the array's own.
    """
    return any(entry[3][1] < NEGATIVE for entry in entries)


def has_purpose(body: bytes) -> bool:
    """Whether the entry is more than a delivery at its own time; never so of a stub."""
    return body[0] == WITH_PURPOSE


def stub(body: bytes) -> bytes:
    """What is kept of a body that is left in Kafka: its size in bytes."""
    return cast(bytes, msgpack.packb(len(body)))


def is_stub(body: bytes) -> bool:
    """Whether this stands for a body that has to be read back."""
    return body[0] not in {CONTENT_ALONE, WITH_PURPOSE}


def body_bytes(body: bytes) -> int:
    """Size of a body, or of the one that a stub stands for."""
    return cast(int, msgpack.unpackb(body)) if is_stub(body) else len(body)


def parts_of(body: bytes, target: str, due_ms: int) -> tuple[Purpose | None, Content]:
    """What the body of an entry for `target` with this due holds; None where it is delivered at its
    own time."""
    *purpose, partition, key, value, headers = msgpack.unpackb(body, use_list=False)
    if partition < BY_KEY:
        headers, partition = expanded(partition, headers, target, due_ms), BY_KEY
    return Purpose(*purpose[0]) if purpose else None, (partition, key, value, list(headers))


class IngressPartition(NamedTuple):
    """One partition of the ingress topic."""

    topic: str
    number: int

    @property
    def prefix(self) -> str:
        """What the origins of its records begin with: the offset follows."""
        return f"{self.topic}/{self.number}/"

    def origin(self, offset: int) -> str:
        """The name of one of its records, as `timer-origin` and the outcomes carry it."""
        return f"{self.topic}/{self.number}/{offset}"


class Message(Protocol):
    """What the proxy's rules ask of a fetched record; confluent_kafka.Message has it all."""

    def partition(self) -> int: ...
    def offset(self) -> int: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def headers(self) -> Headers | None: ...
    def timestamp(self) -> tuple[int, int]: ...
    def error(self) -> object | None: ...


SHAPES: Final = {
    names: shape
    for shape, names in enumerate(
        (pair for time in (DELIVER_AT, DELAY, LEVEL) for pair in ((TOPIC, time), (time, TOPIC))), -7
    )
}
"""By the names of the two headers, in order. Below -1: no partition is such a number."""
_NAMES: Final = {shape: names for names, shape in SHAPES.items()}


def kept_time(time: bytes, due_ms: int) -> bytes | None:
    """What is kept of a time by which a record is due then."""
    return None if time == b"%d" % due_ms else time


def expanded(
    shape: int, time: bytes | None, target: str, due_ms: int
) -> list[tuple[str, bytes | None]]:
    """The headers of an entry for `target` with this due, as they came."""
    written = b"%d" % due_ms if time is None else time
    return [(name, target.encode() if name == TOPIC else written) for name in _NAMES[shape]]


class Delivery(NamedTuple):
    """An entry, unpacked. `offset` is that of the ingress record to be delivered.

    (fires_ms, entry_offset) is the entry's key; `wanted_ms` when the record may be delivered at the
    soonest, `due_ms` what it asked for.
    """

    due_ms: int
    offset: int
    target: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    entry_offset: int
    fires_ms: int
    wanted_ms: int

    @property
    def is_parked(self) -> bool:
        """Whether it waits for the end of a pause."""
        return self.wanted_ms > self.due_ms and self.header(HOP_NOT_BEFORE) == PARKED

    @property
    def resumed_ms(self) -> int | None:
        """The end of the pause in whose queue it has its place; None: it is in no such queue."""
        raw = self.header(HOP_RESUMED) if self.wanted_ms > self.due_ms else None
        return None if raw is None else int(raw)

    def header(self, name: str) -> bytes | None:
        """The last header of that name."""
        return last_header(self.headers, name)


class LeftInKafka(NamedTuple):
    """An entry whose body, of so many bytes, is in the ingress alone."""

    due_ms: int
    offset: int
    target: str
    size_bytes: int


def delivery_of(entry: Entry) -> Delivery:
    """What is to be delivered, of an entry with or without a purpose of its own."""
    fires_ms, offset, target, body = entry
    purpose, (partition, key, value, headers) = parts_of(body, target, fires_ms)
    due_ms, origin, wanted_ms = purpose or (fires_ms, offset, fires_ms)
    return Delivery(
        due_ms, origin, target, partition, key, value, headers, offset, fires_ms, wanted_ms
    )
