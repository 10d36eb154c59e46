"""`store: levels`: opens it, and looks into its folder from outside."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from storage.options import Options
from storage.shard.checkpoint import read_checkpoint
from storage.shard.files import Files
from storage.sorted.backed_inspection import dump_backing, verify_backing
from storage.sorted.backed_opening import Attach
from storage.sorted.levels_backing import FORMAT, LevelsBacking
from storage.wheel.inspection import Verdict
from storage.wheel.wheel_files import CHECKPOINT


def _backing(folder: Path, _options: Options, files: Files) -> LevelsBacking:
    return LevelsBacking(folder, files)


LEVEL_FIFOS = Attach(_backing, FORMAT)


def verify_levels(folder: Path) -> Verdict:
    """Read every row, check its CRC and its order, and compare the counts."""
    return verify_backing(folder, _looking)


def dump_levels(folder: Path) -> Iterator[dict[str, Any]]:
    """The entries on disk in (due, offset) order, as `storage.wheel.inspection.dump`."""
    return dump_backing(folder, _looking)


@contextmanager
def _looking(folder: Path) -> Iterator[LevelsBacking]:
    read_checkpoint(folder / CHECKPOINT)
    yield LevelsBacking(folder, Files(), is_read_only=True)
