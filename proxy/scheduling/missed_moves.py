"""The missed moves of a partition, kept for replays (docs/exactly-once.md#moved-records).

A move misses if its record has ended before the move is ingested. A replay cannot decide this
again. So the transaction that ends a missed move also writes the move's offset to the settings
topic, as a bit of a bitmap. A replay leaves missed moves out.
"""

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from proxy.protocol.body import Message
from proxy.protocol.bounded_json import read_object, whole
from proxy.protocol.position import MISSED_MOVES_PREFIX, MISSED_PARTITION
from proxy.scheduling.batch import OutgoingRecord

CHUNK_OFFSETS: Final = 1 << 16
"""Number of offsets in one bitmap, which is called a chunk."""
CHUNK_BYTES: Final = CHUNK_OFFSETS // 8


class MissedPlace(NamedTuple):
    """Where the settings topic has the chunks of one ingress partition."""

    topic: str
    key_prefix: str
    topic_id: str
    """Id of the ingress topic."""


def missed_place(
    topic: str, group_id: str, ingress: str, topic_id: str, partition: int
) -> MissedPlace:
    """Return the place in the settings topic `topic`."""
    return MissedPlace(topic, f"{MISSED_MOVES_PREFIX}{group_id}/{ingress}/{partition}/", topic_id)


class MissedPlan(NamedTuple):
    """The next position's `missed_upto`, and the records that write the changed chunks."""

    upto: int | None
    records: tuple[OutgoingRecord, ...]


NONE_MISSED: Final = MissedPlan(None, ())


class MissedMoves:
    """The offsets of one partition's missed moves from the floor on, as bitmaps by chunk."""

    def __init__(
        self, place: MissedPlace, chunks: Mapping[int, bytes] | None = None, at: int | None = None
    ) -> None:
        self._place, self._at = place, at
        self.chunks = {number: bytearray(bitmap) for number, bitmap in (chunks or {}).items()}
        self._written = set(self.chunks)
        self._changed: set[int] = set()

    def __contains__(self, offset: int) -> bool:
        chunk = self.chunks.get(offset // CHUNK_OFFSETS)
        byte, bit = divmod(offset % CHUNK_OFFSETS, 8)
        return chunk is not None and bool(chunk[byte] >> bit & 1)

    def add(self, offset: int) -> None:
        """Note that the move at this offset has missed. Offsets must rise."""
        number = offset // CHUNK_OFFSETS
        byte, bit = divmod(offset % CHUNK_OFFSETS, 8)
        self.chunks.setdefault(number, bytearray(CHUNK_BYTES))[byte] |= 1 << bit
        self._changed.add(number)

    def without(self, messages: Sequence[Message]) -> list[Message]:
        return [message for message in messages if message.offset() not in self]

    def planned(self, next_offset: int, floor: int) -> MissedPlan:
        """Return the chunks to be written by the transaction that commits this position."""
        live = tuple(sorted(number for number in self.chunks if _end_of(number) > floor))
        changed = [number for number in live if number in self._changed]
        gone = sorted(self._written.difference(live))
        at = next_offset if changed else self._at
        records = [
            self._record(number, self._value(number, next_offset, live)) for number in changed
        ]
        records += [self._record(number, None) for number in gone]
        return MissedPlan(at if live else None, tuple(records))

    def confirm(self, missed_upto: int | None, floor: int) -> None:
        self._at = missed_upto
        self.chunks = {n: chunk for n, chunk in self.chunks.items() if _end_of(n) > floor}
        self._written = set(self.chunks)
        self._changed.clear()

    def _value(self, number: int, next_offset: int, live: Sequence[int]) -> bytes:
        packed = base64.b64encode(zlib.compress(self.chunks[number])).decode()
        fields = {
            "topic_id": self._place.topic_id,
            "next_offset": next_offset,
            "chunks": live,
            "offsets": packed,
        }
        return json.dumps(fields, separators=(",", ":")).encode()

    def _record(self, number: int, value: bytes | None) -> OutgoingRecord:
        key = f"{self._place.key_prefix}{number}".encode()
        return OutgoingRecord(self._place.topic, value, key, MISSED_PARTITION, [])


class MissedReading:
    """Reads a partition's missed moves from the records of the settings topic, in order. `at` is
    the committed position's `missed_upto`: the `next_offset` in the last of these records."""

    def __init__(self, place: MissedPlace, at: int, floor: int) -> None:
        self._place, self._at, self._floor = place, at, floor
        self._chunks: dict[int, bytes] = {}
        self._last_at = -1
        self._live: tuple[int, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether the last record has been taken, and each chunk that this record names."""
        needed = (number for number in self._live if _end_of(number) > self._floor)
        return self._last_at == self._at and all(number in self._chunks for number in needed)

    def take(self, key: str, value: bytes | None) -> None:
        """Take one record. Raises ValueError, KeyError or TypeError if it cannot be read."""
        prefix = self._place.key_prefix
        if not key.startswith(prefix) or value is None:
            return
        found = read_object(value)
        if found["topic_id"] == self._place.topic_id:
            self._chunks[int(key.removeprefix(prefix))] = _unpacked(found["offsets"])
            self._last_at = whole(found["next_offset"])
            self._live = tuple(map(whole, found["chunks"]))

    def result(self) -> MissedMoves:
        assert self.is_complete, (self._at, self._last_at, self._live)
        chunks = {n: self._chunks[n] for n in self._live if _end_of(n) > self._floor}
        return MissedMoves(self._place, chunks, self._at)


def _unpacked(offsets: str) -> bytes:
    try:
        bitmap = zlib.decompressobj().decompress(base64.b64decode(offsets), CHUNK_BYTES)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if len(bitmap) != CHUNK_BYTES:
        raise ValueError(f"a bitmap of {len(bitmap)} bytes, not {CHUNK_BYTES}")
    return bitmap


def _end_of(number: int) -> int:
    return (number + 1) * CHUNK_OFFSETS
