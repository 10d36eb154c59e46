"""Opening a folder's RocksDB, for the proxy and for those who only look."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from storage.errors import StoreDamaged
from storage.rocksdb.rocks_database import FORMAT, ROCKS, RocksDatabase
from storage.rocksdb.rocks_reader import RocksReader
from storage.rocksdb.rocks_tier import MOST_BYTES, MOST_ENTRIES, RocksTier
from storage.shard.checkpoint import Checkpoint
from storage.shard.opening import OpenedTier, Opening

LOOKS = 5


def open_rocksdb(opening: Opening) -> OpenedTier:
    """Open or make the database. Raises StoreDamaged, StoreMismatch, OSError."""
    options = replace(
        opening.options,
        memtable_entries=min(opening.options.memtable_entries, MOST_ENTRIES),
        memtable_bytes=min(opening.options.memtable_bytes, MOST_BYTES),
    )
    database = RocksDatabase(opening.folder, options.replayed_offsets)
    try:
        found = database.checkpoint
        bound = {**FORMAT, "body_format": options.body_format}
        ledger = opening.ledger(found or Checkpoint(bound), bound)
        return OpenedTier(RocksTier(database, ledger, bound), ledger, options, is_new=found is None)
    except BaseException:
        database.close()
        raise


@contextmanager
def look_into_rocksdb(folder: Path) -> Iterator[RocksReader]:
    """Read the folder. Raises StoreDamaged, and FileNotFoundError where there is no database."""
    current = folder / ROCKS / "CURRENT"
    if not current.exists():
        raise FileNotFoundError(2, "No such file", str(current))
    database = _opened_for_reading(folder)
    try:
        yield RocksReader(database)
    finally:
        database.close()


def _opened_for_reading(folder: Path) -> RocksDatabase:
    """Opens all files at once; a running proxy may have dropped one between listing and opening."""
    for _ in range(LOOKS - 1):
        with suppress(StoreDamaged):
            return RocksDatabase(folder, is_read_only=True)
    return RocksDatabase(folder, is_read_only=True)
