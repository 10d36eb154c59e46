"""Errors of the storage engine, each with a remedy."""

import os
from contextlib import suppress
from errno import EACCES, EDQUOT, EEXIST, EIO, EMFILE, ENFILE, ENOSPC, ENOTDIR, EPERM, EROFS
from pathlib import Path

LET_WRITE = "Let the proxy's user write there"
MORE_FILES = "Raise the limit of open files"
REMEDIES = {
    EACCES: LET_WRITE,
    EPERM: LET_WRITE,
    EROFS: LET_WRITE,
    ENOTDIR: LET_WRITE,
    EEXIST: LET_WRITE,
    EMFILE: MORE_FILES,
    ENFILE: MORE_FILES,
    EIO: "Check the disk",
    EDQUOT: "Free some space, or raise the quota of the proxy's user",
}


class StorageError(Exception):
    """The base class of all errors of the engine."""


class StoreLocked(StorageError):
    """Another process has the folder open."""

    def __init__(self, folder: Path) -> None:
        super().__init__(
            f"{folder} is in use by another process: stop that process, or give this process "
            "its own data_dir"
        )


class StoreMismatch(StorageError):
    """The folder was written with other parameters."""

    def __init__(self, folder: Path, name: str, found: object, asked: object) -> None:
        super().__init__(
            f"{folder} was made with {name} = {found}, but now it is {asked}: go back to the "
            f"settings or version with {found}, or let the proxy put the folder aside and "
            "rebuild it from the broker"
        )


class StoreDamaged(StorageError):
    """The files are inconsistent. The next opening renames the folder and makes a new one."""


class StorageUnreadable(StorageError):
    """A read failed. Open the folder again."""

    def __init__(self, folder: Path, cause: OSError) -> None:
        super().__init__(
            f"cannot read in {folder}: {cause.strerror or cause}. The folder is opened again. "
            "If this continues, check the disk and the limit of open files"
        )


class StorageFull(StorageError):
    """A write failed. Memory is intact and the write is retried."""

    def __init__(self, folder: Path, cause: OSError) -> None:
        why, remedy = why_and_remedy(folder, cause)
        super().__init__(
            f"cannot write in {folder}: {why}. {remedy}. Entries stay in memory, and the write "
            "is repeated"
        )


def why_and_remedy(folder: Path, cause: OSError) -> tuple[str, str]:
    """Return why a write failed, and the remedy, both without a full stop."""
    if cause.errno == ENOSPC and free_inodes(folder) == 0:
        return "no inode is free (df -i), though there may be space", "Delete files on that disk"
    return cause.strerror or str(cause), REMEDIES.get(cause.errno or 0, "Free some space")


def free_inodes(folder: Path) -> int | None:
    """Return the number of free inodes, or None if the file system has no limit or does not say."""
    for place in (folder, *folder.absolute().parents):
        with suppress(OSError):
            found = os.statvfs(place)
            return found.f_favail if found.f_files else None
    return None
