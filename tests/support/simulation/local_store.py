"""Real stores and registers with tiny limits. Wheels complete laps and segments fill within a
test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from proxy.protocol.position import Position
from storage.ids.register import Register, open_register
from storage.opening import open_store
from storage.options import RECORD_BYTES, IdOptions, Options, StoreKind
from storage.store import Committed, Store

TINY = Options(
    precision_ms=4,
    slots=8,
    segment_bytes=21 * RECORD_BYTES + 16,
    memtable_entries=6,
    replayed_offsets=12,
    close_slots=2,
    most_names=2,
)


TINY_IDS = IdOptions(
    memtable_entries=4,
    replayed_offsets=6,
    write_entries=2,
    merge_entries=3,
    most_runs=4,
    merged_runs=2,
    most_names=2,
)


def register_in(data_dir: Path) -> Callable[[int, Position, int], Register]:
    def open_partition(partition: int, at: Position, covered: int) -> Register:
        committed = Committed(at.watermark_ms, at.cursor, at.floor, covered, _distrusted(at))
        return open_register(data_dir / str(partition) / "ids", committed, TINY_IDS)

    return open_partition


def store_in(
    kind: StoreKind, data_dir: Path, options: Options = TINY
) -> Callable[[int, Position], Store]:
    def open_partition(partition: int, at: Position) -> Store:
        ended = at.watermark_ms, at.cursor
        committed = Committed(*ended, at.floor, at.next_offset, _distrusted(at))
        return open_store(kind, data_dir / str(partition), committed, options)

    return open_partition


def _distrusted(at: Position) -> int:
    return -1 if at.set_back is None else at.set_back.below
