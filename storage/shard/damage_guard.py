"""Damage met while a folder is in use is noted in it: the next opening puts it aside."""

from contextlib import suppress
from pathlib import Path

from storage.errors import StorageFull, StoreDamaged
from storage.shard.files import Files

DAMAGED = "damaged"


class DamageGuard:
    """Around all work on a folder's files: notes damage, and turns what the disk refuses into
    StorageFull."""

    def __init__(self, folder: Path, files: Files) -> None:
        self._folder = folder
        self._files = files

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, StoreDamaged):
            with suppress(OSError):
                self._files.replace(self._folder / DAMAGED, str(error).encode())
        if isinstance(error, OSError):
            raise StorageFull(self._folder, error) from error


def damage_noted(folder: Path) -> str | None:
    """What was noted in the folder, None if nothing was."""
    try:
        return (folder / DAMAGED).read_text(errors="replace")
    except FileNotFoundError:
        return None
