"""Makes files cold: the system forgets what it holds of them in memory."""

import os
from contextlib import suppress
from pathlib import Path


def forget(folder: Path) -> None:
    """Write out the files below a folder and drop their pages; where the system cannot be asked for
    that they stay. Nobody may have them mapped; what goes meanwhile is left out."""
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
