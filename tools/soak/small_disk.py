"""Small file system for a data folder, which can be filled. Mounting needs root."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import ENOSPC
from pathlib import Path
from typing import Final

SIZE_BYTES: Final = 512 << 20
"""About fifty times the size of the soak's shards, because shards allocate their indexes in
advance."""
FILLER: Final = "filler"
MOUNTED_WITHIN_S: Final = 30


def fill(folder: Path) -> None:
    """Use up the free space of the file system. Space that is freed afterwards stays free."""
    left = os.statvfs(folder)
    with (folder / FILLER).open("wb") as file, suppress(OSError):
        os.posix_fallocate(file.fileno(), 0, left.f_bavail * left.f_bsize)
    with (folder / FILLER).open("ab") as file:
        try:
            while True:
                os.write(file.fileno(), bytes(left.f_bsize))
        except OSError as error:
            if error.errno != ENOSPC:
                raise


def free(folder: Path) -> None:
    (folder / FILLER).unlink(missing_ok=True)


@contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """Mount a small file system in memory on `folder`. Yield False if that is not allowed."""
    folder.mkdir(parents=True, exist_ok=True)
    is_mounted = _is_done("mount", "-t", "tmpfs", "-o", f"size={SIZE_BYTES}", "tmpfs", str(folder))
    try:
        yield is_mounted
    finally:
        if is_mounted:
            _is_done("umount", "--lazy", str(folder))


def _is_done(*command: str) -> bool:
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=MOUNTED_WITHIN_S)
    except OSError:
        return False
    return done.returncode == 0
