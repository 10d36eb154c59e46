"""What storage keeps of an ingress record, as bytes: partition, key, value and headers.

A body is packed where the record is parsed, while it is hot in the caches, and unpacked where it
is produced; in between the pieces of a record are one object instead of a dozen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias, cast

import msgpack

from storage.store import Entry

Headers: TypeAlias = list[tuple[str, bytes | None]]
Content: TypeAlias = tuple[int, bytes | None, bytes | None, Headers]
"""(partition or -1, key, value, headers)."""

NO_PARTITION: Final = 0xFF
LARGEST_BATCH_BYTES: Final = 2**31 - 1


class Delivery(NamedTuple):
    """An entry with its body unpacked."""

    due_ms: int
    offset: int
    target: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers


def packer() -> Callable[[Content], bytes]:
    """A function that packs contents; not to be shared by threads."""
    return cast(Callable[[Content], bytes], msgpack.Packer(autoreset=True).pack)


def unpacked(entries: Iterable[Entry]) -> Iterator[Content]:
    """The contents of entries' bodies, one after the other."""
    unpacker = msgpack.Unpacker(use_list=False, max_buffer_size=LARGEST_BATCH_BYTES)
    unpacker.feed(b"".join([entry[3] for entry in entries]))
    return cast(Iterator[Content], unpacker)


def asks_for_partition(body: bytes) -> bool:
    """Whether the record names a partition: -1 packs to one byte, behind the array's own."""
    return body[1] != NO_PARTITION


def delivery(entry: Entry) -> Delivery:
    """One entry, unpacked."""
    due_ms, offset, target, body = entry
    partition, key, value, headers = msgpack.unpackb(body, use_list=False)
    return Delivery(due_ms, offset, target, partition, key, value, list(headers))
