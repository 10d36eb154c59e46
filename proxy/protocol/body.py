"""Bodies of entries, packed and unpacked, and the deliveries made from them.

Bodies are packed during parsing, while the record is in the CPU's caches.
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
    TOPIC,
    UNTIL_RESUMED,
)
from storage.store import Entry

Headers: TypeAlias = list[tuple[str, bytes | None]]
Content: TypeAlias = tuple[int, bytes | None, bytes | None, Headers]
"""(partition or -1, key, value, headers)."""
Kept: TypeAlias = tuple[int, bytes | None, bytes | None, Headers | bytes | None]
"""A packed content. A partition below -1 is one of SHAPES. Then only the time header is kept."""

BY_KEY: Final = -1
BODY_FORMAT: Final = 4
"""Version of bodies on disk. A folder with another version is rebuilt."""
NEGATIVE: Final = 0xE0
"""msgpack writes -32 to -1 as this byte or above. Then the record names no partition."""
CONTENT_ALONE: Final = 0x94
WITH_PURPOSE: Final = 0x95
"""First byte of a body: a msgpack array of four, or five with a purpose. Stubs have other bytes."""
GONE: Final = 2**31
"""Partition of an entry whose record was deleted from the ingress. No request can name it."""
GONE_BODY: Final = cast(bytes, msgpack.packb((GONE, None, None, [])))
LARGEST_BATCH_BYTES: Final = 2**31 - 1


class Purpose(NamedTuple):
    """The purpose of an entry. Entries that deliver their own record at their due have none."""

    due_ms: int
    """The time that the record asked for."""
    origin: int
    wanted_ms: int
    """The not-before time, at or after `due_ms`. An entry that fires sooner is rewritten."""


Pack: TypeAlias = Callable[[tuple[object, ...]], bytes]
"""A function that packs a content, or (purpose, *content)."""


def last_header(headers: Headers, name: str) -> bytes | None:
    """Return the last value of a header."""
    return next((raw for found, raw in reversed(headers) if found == name), None)


def may_have_header(body: bytes, name: str) -> bool:
    """Return whether a body may have this header. Searches the bytes and unpacks nothing."""
    return name.encode() in body


def packer() -> Pack:
    """Return a packing function. Threads must not share it."""
    return cast(Pack, msgpack.Packer(autoreset=True).pack)


def unpacked(entries: Iterable[Entry]) -> Iterator[Kept]:
    """Unpack the bodies of entries without a purpose."""
    unpacker = msgpack.Unpacker(use_list=False, max_buffer_size=LARGEST_BATCH_BYTES)
    unpacker.feed(b"".join([entry[3] for entry in entries]))
    return cast(Iterator[Kept], unpacker)


def need_dispatch(entries: Iterable[Entry]) -> bool:
    """Return whether any entry names a partition or has a purpose."""
    return any(entry[3][1] < NEGATIVE for entry in entries)


def has_purpose(body: bytes) -> bool:
    """Return whether a body begins with a purpose."""
    return body[0] == WITH_PURPOSE


def stub(body: bytes) -> bytes:
    """Return a stub, which has only the size of the body (`bodies: kafka`)."""
    return cast(bytes, msgpack.packb(len(body)))


def is_stub(body: bytes) -> bool:
    """Return whether the record must be read back from the ingress."""
    return body[0] not in {CONTENT_ALONE, WITH_PURPOSE}


def body_bytes(body: bytes) -> int:
    """Return the size of the full body."""
    return cast(int, msgpack.unpackb(body)) if is_stub(body) else len(body)


class IngressPartition(NamedTuple):
    """One partition of the ingress topic."""

    topic: str
    number: int

    @property
    def prefix(self) -> str:
        return f"{self.topic}/{self.number}/"

    def origin(self, offset: int) -> str:
        return f"{self.topic}/{self.number}/{offset}"


class Message(Protocol):
    """The part of confluent_kafka.Message that the proxy uses."""

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
"""Number for each pair of header names in their order. It is below -1, so it is no partition."""
_NAMES: Final = {shape: names for names, shape in SHAPES.items()}


def kept_time(time: bytes, due_ms: int) -> bytes | None:
    """Return the packed form of a time: None if it equals `due_ms`."""
    return None if time == b"%d" % due_ms else time


class Delivery(NamedTuple):
    """An unpacked entry."""

    due_ms: int
    offset: int
    """Offset of the ingress record to deliver."""
    target: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    entry_offset: int
    """The entry's key is (fires_ms, entry_offset)."""
    fires_ms: int
    wanted_ms: int

    @property
    def is_paused(self) -> bool:
        return self.wanted_ms > self.due_ms and self.header(HOP_NOT_BEFORE) == UNTIL_RESUMED

    @property
    def resumed_ms(self) -> int | None:
        """Return the end of the pause whose queue holds the record, or None."""
        raw = self.header(HOP_RESUMED) if self.wanted_ms > self.due_ms else None
        return None if raw is None else int(raw)

    def header(self, name: str) -> bytes | None:
        return last_header(self.headers, name)


class LeftInKafka(NamedTuple):
    """An entry whose body is only in the ingress."""

    due_ms: int
    offset: int
    target: str
    size_bytes: int


def delivery_of(entry: Entry) -> Delivery:
    """Unpack an entry into its delivery."""
    fires_ms, offset, target, body = entry
    *purpose, partition, key, value, headers = msgpack.unpackb(body, use_list=False)
    if partition < BY_KEY:
        time = b"%d" % fires_ms if headers is None else headers
        headers = [(name, target.encode() if name == TOPIC else time) for name in _NAMES[partition]]
        partition = BY_KEY
    due_ms, origin, wanted_ms = purpose[0] if purpose else (fires_ms, offset, fires_ms)
    return Delivery(
        due_ms,
        origin,
        target,
        partition,
        key,
        value,
        list(headers),
        offset,
        fires_ms,
        wanted_ms,
    )
