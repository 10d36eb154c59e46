"""What can go wrong in a shard's folder, each with a sentence a person can act on."""

from errno import EACCES, EPERM, EROFS
from pathlib import Path

FORBIDDEN = frozenset({EACCES, EPERM, EROFS})


class StorageError(Exception):
    """Anything the engine reports; the subclasses say what to do about it."""


class StoreLocked(StorageError):
    """Another process has the folder open."""

    def __init__(self, folder: Path) -> None:
        super().__init__(
            f"{folder} is in use by another process: stop that one, or give this one "
            "a data_dir of its own"
        )


class StoreMismatch(StorageError):
    """The folder was written with other parameters than the ones asked for."""

    def __init__(self, folder: Path, name: str, found: object, asked: object) -> None:
        super().__init__(
            f"{folder} was made with {name} = {found}, but {asked} is asked for: go back to the "
            f"settings or the version with {found}, or let the folder be put aside and rebuilt "
            "from the broker"
        )


class StoreDamaged(StorageError):
    """The files contradict themselves: open the folder again, it is then put aside."""


class StorageUnreadable(StorageError):
    """A read was refused (too many open files, I/O error): open the folder again."""

    def __init__(self, folder: Path, cause: OSError) -> None:
        super().__init__(
            f"cannot read in {folder}: {cause.strerror or cause}. The folder is opened again; if "
            "this goes on, see to the disk and to the limit of open files"
        )


class StorageFull(StorageError):
    """A write was refused (disk full, I/O error); memory is intact and the write is retried."""

    def __init__(self, folder: Path, cause: OSError) -> None:
        remedy = (
            "Let the proxy's user write there" if cause.errno in FORBIDDEN else "Free some space"
        )
        super().__init__(
            f"cannot write in {folder}: {cause.strerror or cause}. {remedy}; "
            "entries stay in memory and the write is tried again"
        )
