"""Helpers of the engine's tests: a codec, tiny wheels, entries, and stores on a folder."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from storage.folder import Files
from storage.opening import open_store
from storage.options import RECORD_BYTES, Options, StoreKind
from storage.rocksdb import RocksTier
from storage.store import Committed, Entry, Store
from storage.tier import DiskTier
from storage.tiered_store import TieredStore
from storage.wheel.tier import WheelTier

START_MS = 1_800_000_000_000
TINY = Options(
    precision_ms=100,
    slots=8,
    segment_bytes=85 * RECORD_BYTES + 16,
    memtable_entries=20,
    memtable_bytes=10**9,
    replayed_offsets=200,
    close_slots=3,
    most_names=2,
)


BACKGROUND_WORK = (
    "num-running-flushes",
    "mem-table-flush-pending",
    "num-running-compactions",
    "compaction-pending",
)


def entry(due_ms: int, offset: int, target: str = "orders") -> Entry:
    """Return an entry due `due_ms` after the start. Its body contains its offset."""
    return START_MS + due_ms, offset, target, f"value {offset}".encode()


def entries(dues_ms: Sequence[int], first_offset: int = 0) -> list[Entry]:
    return [entry(due_ms, first_offset + at) for at, due_ms in enumerate(dues_ms)]


def committed(
    watermark_ms: int = 0, cursor: int = -1, floor: int = 0, next_offset: int = 0
) -> Committed:
    return Committed(START_MS + watermark_ms, cursor, floor, next_offset)


def opened(folder: Path, at: Committed | None = None, **kwargs: Any) -> TieredStore:
    return opened_kind("wheel", folder, at, **kwargs)


def opened_kind(
    kind: StoreKind, folder: Path, at: Committed | None = None, **kwargs: Any
) -> TieredStore:
    options = kwargs.pop("options", TINY)
    files: Files | None = kwargs.pop("files", None)
    return open_store(kind, folder, at or committed(), options, files=files, **kwargs)


def crashed(store: TieredStore, folder: Path) -> None:
    """Close the store and restore its folder, because closing RocksDB writes."""
    if isinstance(store._tier, WheelTier):
        store.close()
        return
    as_it_was = folder.with_name("as-it-was")
    while not _is_copied(store._tier, folder, as_it_was):
        shutil.rmtree(as_it_was, ignore_errors=True)
    store.close()
    shutil.rmtree(folder)
    as_it_was.rename(folder)


def _is_copied(tier: DiskTier, folder: Path, copy: Path) -> bool:
    """Copy the folder between RocksDB's background jobs. Return False if files changed."""
    if isinstance(tier, RocksTier):
        while any(
            tier.database._db.property_int_value(f"rocksdb.{work}") for work in BACKGROUND_WORK
        ):
            pass
    try:
        before = _listing(folder)
        shutil.copytree(folder, copy)
        return _listing(folder) == before
    except (shutil.Error, FileNotFoundError):
        return False


def _listing(folder: Path) -> dict[str, tuple[int, int]]:
    stats = {str(path): path.stat() for path in folder.rglob("*")}
    return {path: (stat.st_size, stat.st_mtime_ns) for path, stat in stats.items()}


def taken(store: Store, until_ms: int, limit: int = 1000) -> list[Entry]:
    found: list[Entry] = []
    while batch := store.due(START_MS + until_ms, limit).entries:
        found += batch
        store.advance(*batch[-1][:2])
    return found
