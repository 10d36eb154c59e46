"""What goes wrong with a folder while it is in use: damage is noted, errors get their meaning."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from storage.errors import StorageError, StorageFull, StorageUnreadable, StoreDamaged
from storage.shard.files import Files

DAMAGED = "damaged"


class _Section:
    """Hands every error within to `fail`. A context manager that is entered again and again."""

    def __init__(self, fail: Callable[[BaseException], None]) -> None:
        self._fail = fail

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self._fail(error)


class DamageGuard:
    """Around all work on a folder's files. Damage is noted there: the next opening puts it aside.

    `reading` turns OSError into StorageUnreadable, `writing` into StorageFull. `failed` is the last
    of the former: from then on counts may lag behind what has ended, and are not to be written.
    """

    def __init__(self, folder: Path, files: Files) -> None:
        self.reading, self.writing = _Section(self._read_failed), _Section(self._write_failed)
        self.failed: StorageError | None = None
        self._folder = folder
        self._files = files

    def _read_failed(self, error: BaseException) -> None:
        self._note(error)
        if isinstance(error, OSError):
            self.failed = StorageUnreadable(self._folder, error)
            raise self.failed from error

    def _write_failed(self, error: BaseException) -> None:
        self._note(error)
        if isinstance(error, OSError):
            raise StorageFull(self._folder, error) from error

    def _note(self, error: BaseException) -> None:
        if isinstance(error, StoreDamaged):
            with suppress(OSError):
                self._files.replace(self._folder / DAMAGED, str(error).encode())


def damage_noted(folder: Path) -> str | None:
    """What was noted in the folder, None if nothing was."""
    try:
        return (folder / DAMAGED).read_text(errors="replace")
    except FileNotFoundError:
        return None
