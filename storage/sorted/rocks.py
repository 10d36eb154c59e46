"""`store: rocksdb`: opens it, and looks into its folder from outside."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from storage.errors import StoreDamaged
from storage.options import Options
from storage.shard.files import Files
from storage.sorted.backed_inspection import dump_backing, verify_backing
from storage.sorted.backed_opening import Attach
from storage.sorted.rocks_db import FORMAT, ROCKS, RocksBacking
from storage.wheel.inspection import Verdict


def _backing(folder: Path, options: Options, files: Files) -> RocksBacking:  # noqa: ARG001
    return RocksBacking(folder, options.recent_offsets)


LOOKS = 5
ROCKS_DB = Attach(_backing, FORMAT)


def verify_rocks(folder: Path) -> Verdict:
    """Read every row, which has RocksDB check every block it reads, and compare the counts."""
    return verify_backing(folder, _looking)


def dump_rocks(folder: Path) -> Iterator[dict[str, Any]]:
    """The entries on disk in (due, offset) order, as `storage.wheel.inspection.dump`."""
    return dump_backing(folder, _looking)


def _reader(folder: Path) -> RocksBacking:
    """Opens all files at once; a running proxy may have dropped one between listing and opening."""
    for _ in range(LOOKS - 1):
        with suppress(StoreDamaged):
            return RocksBacking(folder, is_read_only=True)
    return RocksBacking(folder, is_read_only=True)


@contextmanager
def _looking(folder: Path) -> Iterator[RocksBacking]:
    if not (folder / ROCKS / "CURRENT").exists():
        raise FileNotFoundError(2, "No such file", str(folder / ROCKS / "CURRENT"))
    backing = _reader(folder)
    try:
        yield backing
    finally:
        backing.close()
