"""The timer log's records and runs, as bytes and as numpy rows (storage/FORMAT.md, "Runs").

Rows are chosen by `take` and `compress`, and set by `put`: these copy a row as bytes, where an
index with brackets goes field by field, which takes twenty times as long.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from zlib_ng.zlib_ng import crc32

from storage.options import RECORD_BYTES
from storage.shard.memory.columns import count_upto
from storage.store import Column

Rows = npt.NDArray[np.void]

RECORD = np.dtype(
    [
        ("due_ms", "<i8"),
        ("offset", "<i8"),
        ("length", "<u4"),
        ("crc", "<u4"),
        ("location_low", "<u4"),
        ("location_high", "<u2"),
        ("target", "<u2"),
    ]
)
"""The location of a body is the span of its file and the position in it: see `locate`."""
HEADER = np.dtype(
    [
        ("magic", "<u4"),
        ("crc", "<u4"),
        ("prev", "<i8"),
        ("time", "<i8"),
        ("chain", "<u4"),
        ("count", "<u4"),
    ]
)
_OPAQUE = np.dtype((np.void, RECORD_BYTES))
RUN_MAGIC = int.from_bytes(b"TLR3", "little")
CRC_FROM = 8
SHORTEST_BYTES = 2 * RECORD_BYTES
"""A run of one record."""
POSITION_BITS = 46
"""A body lies below 64 TiB of its file."""
assert RECORD.itemsize == HEADER.itemsize == RECORD_BYTES


class Head(NamedTuple):
    """The newest run of a chain and what the chain holds: what a wheel slot keeps.

    time: lowest slot number with a record; last: log position of the newest run; records: how many
    all runs hold."""

    time: int
    last: int
    records: int


EMPTY = Head(-1, -1, 0)


class Run(NamedTuple):
    """One run as read from the log: records of one slot, in (due, offset) order."""

    position: int
    slot: int
    prev: int
    records: int
    head: Head
    rows: Rows

    def upto(self, due_ms: int, offset: int) -> int:
        """How many of the rows are at or below (due_ms, offset)."""
        return rows_upto(self.rows, due_ms, offset)


def rows_upto(rows: Rows, due_ms: int, offset: int) -> int:
    """How many of the sorted `rows` are at or below (due_ms, offset)."""
    dues_ms = rows["due_ms"]
    if not rows.size or dues_ms[0] > due_ms:
        return 0
    return count_upto(dues_ms, rows["offset"], (due_ms, offset))


def locate(rows: Rows, spans: Column, positions: Column) -> None:
    """Note in which file and where in it the rows' bodies lie."""
    rows["location_low"] = positions & 0xFFFFFFFF
    rows["location_high"] = (positions | spans << POSITION_BITS) >> 32


def locations(rows: Rows) -> tuple[Column, Column]:
    """Spans of the files of the rows' bodies, and positions in these."""
    found = rows["location_high"].astype(np.int64) << 32 | rows["location_low"]
    return found >> POSITION_BITS, found & ((1 << POSITION_BITS) - 1)


def in_order(rows: Rows) -> Rows:
    """The rows sorted by (due, offset)."""
    ordered: Rows = rows.take(np.lexsort((rows["offset"], rows["due_ms"])))
    return ordered


def joined(parts: Sequence[Rows]) -> Rows:
    """The rows of all parts as one array (as plain bytes: numpy compares field names otherwise)."""
    if len(parts) == 1:
        return parts[0]
    rows: Rows = np.concatenate([part.view(_OPAQUE) for part in parts]).view(RECORD)
    return rows


def stretches(column: Column) -> list[tuple[int, int]]:
    """Start and length of each stretch of equal values."""
    if not column.size:
        return []
    starts, lengths = boundaries(column)
    return list(zip(starts.tolist(), lengths.tolist(), strict=True))


def boundaries(column: Column) -> tuple[Column, Column]:
    """Start and length of each stretch of equal values, as columns."""
    changes = np.flatnonzero(column[1:] != column[:-1]) + 1
    edges = np.concatenate(([0], changes, [column.size]))
    return edges[:-1], np.diff(edges)


def seal(block: Rows, headers: Column, counts: Column) -> memoryview:
    """Give the block's bytes, the CRC of each run filled in: its header row, its records."""
    data = block.view(np.uint8).data
    starts = (headers * RECORD_BYTES + CRC_FROM).tolist()
    ends = ((headers + counts + 1) * RECORD_BYTES).tolist()
    block.view(HEADER)["crc"][headers] = [
        crc32(data[start:end]) for start, end in zip(starts, ends, strict=True)
    ]
    return data
