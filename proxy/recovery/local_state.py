"""Where shards keep their local state: one folder per partition and topic id, in the data folder.

The data folder belongs to one `run` at a time; within it a folder belongs to one worker.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from proxy.errors import DataDirInUse
from proxy.records.position import Position
from storage.errors import StorageFull, StoreLocked
from storage.ids.opening import open_register
from storage.opening import open_store
from storage.options import Options, StoreKind
from storage.register import Register
from storage.store import Committed, Store

STUBS: Final = "stubs"
"""In a shard's folder: some of its entries may have stubs for bodies (setting `bodies`)."""
IDS: Final = "ids"
LOCK_FILE: Final = "lock"
LOCK_WAIT_S: Final = 30.0
"""How long a worker that has lost a shard may take to let go of its folder."""

log = structlog.get_logger(__name__)


@contextmanager
def held_data_dir(data_dir: Path) -> Iterator[None]:
    """Hold the data folder; raises DataDirInUse when another `run` has it."""
    data_dir.mkdir(parents=True, exist_ok=True)
    with (data_dir / LOCK_FILE).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataDirInUse(str(data_dir)) from None
        yield


class Disk(NamedTuple):
    """size_bytes: of the whole disk. free_bytes: what is left of it for this process's user."""

    size_bytes: int
    free_bytes: int


class LocalState:
    """Opens shards' folders against the broker's truth.

    With `puts_stubs` the folders opened are marked as holding stubs; the mark stays, whatever the
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
        puts_stubs: bool = False,
    ) -> None:
        self._data_dir, self._topic, self._topic_id = data_dir, topic, topic_id
        self._options, self._kind = options, kind
        self._puts_stubs = puts_stubs

    def exists(self, partition: int) -> bool:
        """True when this machine has kept state of the partition, whatever the topic's id."""
        return any(self._data_dir.glob(f"{self._topic}-{partition}@*"))

    def open(self, partition: int, position: Position) -> Store:
        """The shard's store; waits for a worker that is about to let go of it."""
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
        """What is kept of the ids of a shard that has been opened; `covered` is its store's.

        One that covers more is started anew: what the store has lost, RocksDB its memory, could not
        be judged again by ids that are ahead of it.
        """
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
        """Whether entries of the opened shard may have stubs in place of their bodies."""
        return (self._folder(partition) / STUBS).exists()

    def disk_bytes(self, partitions: Iterable[int]) -> int:
        """What these partitions' folders take on disk (holes in files not counted)."""
        files = (file for p in partitions for file in self._folder(p).rglob("*"))
        return sum(_disk_bytes(file) for file in files)

    def disk(self) -> Disk:
        """The disk on which the data folder lies."""
        size_bytes, _used, free_bytes = shutil.disk_usage(self._data_dir)
        return Disk(size_bytes, free_bytes)

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
            self._mark(folder / STUBS, store)
        except OSError as error:
            store.close()
            raise StorageFull(folder, error) from error
        return store

    def _mark(self, mark: Path, store: Store) -> None:
        if self._puts_stubs:
            _create_durably(mark)
        elif mark.exists() and not store.pending():
            mark.unlink()


def _committed(at: Position) -> Committed:
    return Committed(at.watermark_ms, at.cursor, at.floor, at.next_offset)


def _create_durably(mark: Path) -> None:
    """An entry may outlive a power loss: a mark that did not would have stubs taken for bodies."""
    mark.touch()
    for path in (mark, mark.parent):
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _disk_bytes(file: Path) -> int:
    try:
        return file.stat().st_blocks * 512
    except FileNotFoundError:
        return 0
