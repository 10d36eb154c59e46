"""What storage keeps of an ingress record, as bytes: partition, key, value and headers.

An entry that is more than a delivery at its own due has its purpose before these. A body is packed
where the record is parsed, while it is hot in the caches, and unpacked where it is produced; in
between the pieces of a record are one object instead of a dozen. With `bodies: kafka` storage keeps
a stub instead: how many bytes the body has.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias, cast

import msgpack

from proxy.records.header_shapes import expanded
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


def needs_dispatch(body: bytes) -> bool:
    """Whether this is more than a delivery by key: it names a partition, or has a purpose.

    Without either -1 or a shape comes first, which packs to one byte, behind the array's own.
    """
    return body[1] < NEGATIVE


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
