"""Eviction of files from the page cache."""

import os
from contextlib import suppress
from pathlib import Path


def forget(folder: Path) -> None:
    """Write the files below a folder to disk and drop their cached pages. The files must not be
    mapped into memory. Do nothing on a system without `posix_fadvise`."""
    if not hasattr(os, "posix_fadvise"):
        return
    for path in filter(Path.is_file, folder.rglob("*")):
        with suppress(FileNotFoundError):
            _drop(path)


def _drop(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)
