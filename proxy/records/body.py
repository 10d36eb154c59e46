"""What storage keeps of an ingress record, as bytes: partition, key, value and headers.

A body is packed where the record is parsed, while it is hot in the caches, and unpacked where it
is produced; in between the pieces of a record are one object instead of a dozen. With
`bodies: kafka` storage keeps a stub instead: how many bytes the body has.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeAlias, cast

import msgpack

from storage.store import Entry

Headers: TypeAlias = list[tuple[str, bytes | None]]
Content: TypeAlias = tuple[int, bytes | None, bytes | None, Headers]
"""(partition or -1, key, value, headers)."""

NO_PARTITION: Final = 0xFF
FULL: Final = 0x94
"""First byte of a body: an array of four. A stub begins otherwise."""
GONE: Final = 2**31
"""Partition of an entry whose record is no longer in the ingress. No request can name it."""
LARGEST_BATCH_BYTES: Final = 2**31 - 1


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


def stub(body: bytes) -> bytes:
    """What is kept of a body that is left in Kafka: its size in bytes."""
    return cast(bytes, msgpack.packb(len(body)))


def is_stub(body: bytes) -> bool:
    """Whether this stands for a body that has to be read back."""
    return body[0] != FULL


def body_bytes(body: bytes) -> int:
    """Size of a body, or of the one that a stub stands for."""
    return cast(int, msgpack.unpackb(body)) if is_stub(body) else len(body)


def content_of(body: bytes) -> Content:
    """What one body holds."""
    partition, key, value, headers = msgpack.unpackb(body, use_list=False)
    return partition, key, value, list(headers)
