"""A shard's folder as a whole: locked by one process, put aside when it cannot be trusted."""

import fcntl
import os
import shutil
from pathlib import Path

from storage.errors import StoreLocked
from storage.options import KINDS, StoreKind
from storage.shard.files import Files

KEPT_ASIDE = 2


def kind_of(folder: Path) -> StoreKind | None:
    """The kind that made the folder, by the file of its name; None where there is none."""
    return next((kind for kind in KINDS if (folder / kind).exists()), None)


class FolderLock:
    """An exclusive lock on a folder, which it creates."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._fd = _lock(folder)

    def put_aside(self, files: Files) -> Path:
        """Rename the folder to `<folder>.broken-<n>` and lock a new one in its place.

        Of the folders put aside the newest KEPT_ASIDE stay."""
        taken = sorted(_numbers(self.folder))
        aside = _aside(self.folder, taken[-1] + 1 if taken else 1)
        files.rename(self.folder, aside)
        self.folder.mkdir()
        fd = _lock(self.folder)
        self.release()
        self._fd = fd
        for number in taken[: len(taken) + 1 - KEPT_ASIDE]:
            shutil.rmtree(_aside(self.folder, number), ignore_errors=True)
        return aside

    def release(self) -> None:
        """Let another process have the folder."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _lock(folder: Path) -> int:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise StoreLocked(folder) from None
    return fd


def _aside(folder: Path, number: int) -> Path:
    return folder.with_name(f"{folder.name}.broken-{number}")


def _numbers(folder: Path) -> list[int]:
    tails = [
        path.name.rpartition("-")[2]
        for path in folder.parent.iterdir()
        if path.name.startswith(f"{folder.name}.broken-")
    ]
    return [int(tail) for tail in tails if tail.isdigit()]
