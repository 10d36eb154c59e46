"""A folder of results that appears whole or not at all."""

import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from spark_jobs.runtime.errors import ResultsRefused
from spark_jobs.runtime.failures import explained

SUMMARY: Final = "summary.json"
"""Written last: a folder without it is not an audit's."""
LOCK: Final = ".lock"


def check_folder(folder: Path) -> None:
    """Raises `ResultsRefused` where `folder` holds something else than an audit's results."""
    if folder.is_dir() and ((folder / SUMMARY).is_file() or not any(folder.iterdir())):
        return
    if folder.exists() or folder.is_symlink():
        raise ResultsRefused(
            f"{folder} exists and does not hold the results of an audit.",
            "Name a new folder in --output, or one that an audit wrote before.",
        )


@contextmanager
def new_results(folder: Path) -> Iterator[Path]:
    """Gives a folder beside `folder` to write into, and renames it when all went well.

    Results of an earlier audit in `folder` stay until then. Whatever is raised inside leaves
    nothing behind; full disks and Spark's failures come out as `AuditError`s.
    """
    with _named(folder), explained():
        check_folder(folder)
        folder = folder.resolve()
        folder.parent.mkdir(parents=True, exist_ok=True)
        _clear_abandoned(folder)
        arriving = Path(tempfile.mkdtemp(dir=folder.parent, prefix=_prefix(folder)))
        try:
            with (arriving / LOCK).open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield arriving
                _put_in_place(arriving, folder)
        finally:
            shutil.rmtree(arriving, ignore_errors=True)


@contextmanager
def _named(folder: Path) -> Iterator[None]:
    """What the file system refuses beside `folder`, as a sentence."""
    try:
        yield
    except OSError as error:
        raise ResultsRefused(
            f"The results cannot be written to {folder}: {error}.",
            "Make it writable, or name another folder in --output.",
        ) from error


def whole_results(folder: Path) -> Path:
    """The folder again; raises `ResultsRefused` where it holds no results of an audit."""
    if not (folder / SUMMARY).is_file():
        raise ResultsRefused(
            f"{folder} does not hold the results of an audit.",
            "Name in --output the folder that an audit wrote.",
        )
    return folder


def _put_in_place(arriving: Path, folder: Path) -> None:
    """The old results are out of the way for no longer than a rename takes."""
    arriving.chmod(0o755)
    (arriving / LOCK).unlink()
    check_folder(folder)
    if not folder.exists():
        arriving.rename(folder)
        return
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=_prefix(folder)) as aside:
        old = folder.rename(Path(aside) / "old")
        try:
            arriving.rename(folder)
        except OSError:
            old.rename(folder)
            raise


def _prefix(folder: Path) -> str:
    return f".{folder.name}.arriving-"


def _clear_abandoned(folder: Path) -> None:
    """Remove what audits that were killed have left; one that still runs holds its lock."""
    for abandoned in folder.parent.glob(f"{_prefix(folder)}*"):
        try:
            with (abandoned / LOCK).open("r+") as lock:
                if _is_free(lock):
                    shutil.rmtree(abandoned, ignore_errors=True)
        except OSError:
            continue


def _is_free(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
