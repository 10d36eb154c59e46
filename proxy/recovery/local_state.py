"""Where shards keep their local state: one folder per partition and topic id, in the data folder.

The data folder belongs to one `run` at a time; within it a folder belongs to one worker.
"""

import fcntl
import os
import re
import shutil
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Final

import structlog

from proxy.errors import DataDirInUse, DataDirUnusable
from proxy.kafka.group.static_member import MEMBER_FILE
from proxy.records.position import Position
from storage.errors import StorageFull, StoreLocked, why_and_remedy
from storage.ids.register import open_register
from storage.opening import open_store
from storage.options import Options, StoreKind
from storage.register import Register
from storage.store import Committed, Store

STUBS: Final = "stubs"
"""In a shard's folder: some of its entries may have stubs for bodies (setting `bodies`)."""
COMMITTED: Final = "committed"
"""In a shard's folder: its partition had a committed offset. A process that ends before its first
commit leaves a folder without this file, and its successor may begin as it did."""
IDS: Final = "ids"
LOCK_FILE: Final = "lock"
SHARD: Final = re.compile(r"-\d+@[^@]+$")
"""In the name of a shard's folder, also of one that was put aside."""
OURS: Final = re.compile(rf"^{LOCK_FILE}$|^{MEMBER_FILE}\d+$|{SHARD.pattern}")
OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
LOCK_WAIT_S: Final = 30.0
"""How long a worker that has lost a shard may take to let go of its folder."""

log = structlog.get_logger(__name__)


def open_to_others(data_dir: Path) -> Iterator[Path]:
    """Find the proxy's files and folders that other users may read.

    The data folder itself counts where it holds nothing else. What belongs to another user, as
    the root of a mounted volume may, is left out."""
    children = list(data_dir.iterdir()) if data_dir.is_dir() else []
    ours = [child for child in children if OURS.search(child.name)]
    below = (path for child in ours if child.is_dir() for path in child.rglob("*"))
    for path in chain([data_dir] if ours and ours == children else [], ours, below):
        with suppress(OSError):
            found = path.lstat()
            if found.st_uid == os.geteuid() and found.st_mode & OTHERS and not path.is_symlink():
                yield path


@contextmanager
def locked_data_dir(data_dir: Path) -> Iterator[None]:
    """Lock the data folder, and close its files to other users.

    Raises DataDirInUse when another `run` has it, DataDirUnusable when nothing can be written
    there."""
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        lock_file = (data_dir / LOCK_FILE).open("w")
    except OSError as error:
        raise DataDirUnusable(str(data_dir), *why_and_remedy(data_dir, error)) from None
    with lock_file as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataDirInUse(str(data_dir)) from None
        for path in open_to_others(data_dir):
            with suppress(OSError):
                path.chmod(path.stat().st_mode & ~OTHERS)
        yield


class LocalState:
    """Opens shards' folders against the broker's truth.

    With `stores_stubs` the folders opened get a marker file that says so; it stays, whatever the
    setting, until a folder is opened with nothing pending.
    """

    def __init__(
        self,
        data_dir: Path,
        topic: str,
        topic_id: str,
        options: Options,
        kind: StoreKind = "wheel",
        *,
        stores_stubs: bool = False,
    ) -> None:
        self._data_dir, self._topic, self._topic_id = data_dir, topic, topic_id
        self._options, self._kind = options, kind
        self._stores_stubs = stores_stubs

    def was_committed(self, partition: int) -> bool:
        """Return whether a transaction of this partition was ever committed from this folder.

        The state may be of an earlier topic with the same name.
        """
        return any(self._data_dir.glob(f"{self._topic}-{partition}@*/{COMMITTED}"))

    def mark_committed(self, partitions: Iterable[int]) -> None:
        """Remember that these partitions have committed offsets.

        A full disk may refuse the file: the settings topic remembers the same.
        """
        for folder in self.folders(partitions):
            with suppress(OSError):
                (folder / COMMITTED).touch()

    def open(self, partition: int, position: Position) -> Store:
        """Waits for a worker that is about to let go of the folder."""
        folder = self._folder(partition)
        deadline = time.monotonic() + LOCK_WAIT_S
        while True:
            try:
                return self._open(folder, position)
            except StoreLocked as locked:
                if time.monotonic() > deadline:
                    raise
                log.info("waiting for a shard's folder", why=str(locked))
                time.sleep(0.2)

    def open_register(self, partition: int, at: Position, covered: int) -> Register:
        """One that covers more than the store is started anew: what the store has lost, RocksDB its
        memory, could not be read again by ids that are ahead of it."""
        folder = self._folder(partition) / IDS
        register = open_register(folder, replace(_committed(at), next_offset=covered))
        if register.report.aside is not None:
            log.warning(
                "what is known of ids put aside; it is rebuilt from the broker",
                folder=str(folder),
                why=register.report.detail,
                aside=str(register.report.aside),
            )
        return register

    def has_stubs(self, partition: int) -> bool:
        return (self._folder(partition) / STUBS).exists()

    def folders(self, partitions: Iterable[int]) -> list[Path]:
        """Of these partitions."""
        return [self._folder(partition) for partition in partitions]

    def disk_size_and_free_bytes(self) -> tuple[int, int]:
        """Of the whole disk on which the data folder lies, and what is left of it."""
        size_bytes, _used, free_bytes = shutil.disk_usage(self._data_dir)
        return size_bytes, free_bytes

    def _folder(self, partition: int) -> Path:
        return self._data_dir / f"{self._topic}-{partition}@{self._topic_id}"

    def _open(self, folder: Path, at: Position) -> Store:
        store = open_store(self._kind, folder, _committed(at), self._options, rebuild=True)
        report = store.report
        if report.aside is not None:
            log.warning(
                "local state put aside; the shard is rebuilt from the broker",
                folder=str(folder),
                why=report.detail,
                aside=str(report.aside),
            )
        try:
            self._mark_stubs(folder / STUBS, store)
        except OSError as error:
            store.close()
            raise StorageFull(folder, error) from error
        return store

    def _mark_stubs(self, marker: Path, store: Store) -> None:
        if self._stores_stubs:
            _create_durably(marker)
        elif marker.exists() and not store.pending():
            marker.unlink()


def _committed(at: Position) -> Committed:
    distrusted = -1 if at.set_back is None else at.set_back.below
    return Committed(at.watermark_ms, at.cursor, at.floor, at.next_offset, distrusted)


def _create_durably(marker: Path) -> None:
    """An entry may outlive a power loss: without its marker stubs would be taken for bodies."""
    marker.touch()
    for path in (marker, marker.parent):
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
