"""The folders of partitions, opened and measured, and bodies read back from the broker."""

import fcntl
import os
import re
import resource
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Final, TypeAlias

import structlog

from proxy.errors import DataDirInUse, DataDirUnusable
from proxy.kafka.group import MEMBER_FILE
from proxy.protocol.body import (
    GONE_BODY,
    Message,
    body_bytes,
    delivery_of,
    has_purpose,
    is_stub,
    packer,
    stub,
)
from proxy.protocol.parsed import ParsedRecord, Scheduled
from proxy.protocol.position import Position
from storage.errors import StorageFull, StoreLocked, why_and_remedy
from storage.ids.register import Register, open_register
from storage.opening import open_store
from storage.options import Options, StoreKind
from storage.store import PEEK_BYTES, Committed, Due, Entry, Store

log = structlog.get_logger(__name__)


# With `bodies: kafka`, entries on disk have a stub (`proxy.protocol.body`) in place of a body. The
# bodies of due entries are read back from the ingress. After a change of this setting a folder may
# hold both stubs and bodies.

BUDGET_S: Final = 1.0
"""Reading back stops after this time. The entries that have their bodies by then are delivered."""
JUMP_S: Final = 0.002
JUMP_BYTES: Final = 512 * 1024
"""Measured: a jump to an offset takes as long as reading this many bytes."""
JUMP_RECORDS: Final = 2_000
"""Measured: a jump takes as long as reading this many small records."""
LEAST_CHUNK: Final = 64

ReadBack: TypeAlias = Callable[[Sequence[int], int], Mapping[int, Message]]
"""(ascending offsets, largest gap to read through) -> the records that still exist."""


class FetchedBodies:
    """A `storage.store.Store` that replaces the stubs of `inner` by bodies. With `stores_stubs` new
    entries get stubs."""

    def __init__(
        self,
        inner: Store,
        read_back: ReadBack,
        read: Callable[[Message], ParsedRecord],
        *,
        stores_stubs: bool,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._inner, self._read_back, self._read = inner, read_back, read
        self._stores_stubs, self._now_s = stores_stubs, now_s
        self._held: dict[int, Entry] = {}
        self._held_bytes = 0
        self._pack = packer()
        self.floor = inner.floor
        self.next_fires_ms = inner.next_fires_ms
        self.pending = inner.pending
        self.pending_by_target = inner.pending_by_target
        self.pending_bytes = inner.pending_bytes
        self.pending_bytes_by_target = inner.pending_bytes_by_target
        self.pending_by_time = inner.pending_by_time
        self.scan = inner.scan
        self.maintain = inner.maintain
        self.request_flush = inner.request_flush
        self.flush = inner.flush
        self.close = inner.close

    @property
    def covered(self) -> int:
        return self._inner.covered

    @property
    def memtable_bytes(self) -> int:
        return self._inner.memtable_bytes

    @property
    def peeked_bytes(self) -> int:
        return self._inner.peeked_bytes + self._held_bytes

    def put(self, entries: Iterable[Entry]) -> None:
        if self._stores_stubs:
            entries = [_stubbed(entry) for entry in entries]
        self._inner.put(entries)

    def due(self, now_ms: int, max_entries: int, max_bytes: int = PEEK_BYTES) -> Due:
        found = self._inner.due(now_ms, max_entries, max_bytes)
        fitting = _fitting(found.entries, max_bytes)
        if self._held_bytes > 2 * max_bytes:  # not all held entries are among the next to fire
            self._hold(self._held[entry[1]] for entry in fitting if entry[1] in self._held)
        self._fetch(fitting)
        whole: list[Entry] = []
        for entry in fitting:
            made = self._held.get(entry[1]) or entry
            if made is entry and is_stub(entry[3]):
                break
            whole.append(made)
        return Due(whole, found.is_all and len(whole) == len(found.entries))

    def advance(self, watermark_ms: int, cursor: int) -> None:
        self._inner.advance(watermark_ms, cursor)
        if self._held:
            self._hold(e for e in self._held.values() if e[:2] > (watermark_ms, cursor))

    def _hold(self, entries: Iterable[Entry]) -> None:
        self._held = {entry[1]: entry for entry in entries}
        self._held_bytes = sum(len(entry[3]) for entry in self._held.values())

    def _fetch(self, entries: Sequence[Entry]) -> None:
        missing = [e for e in entries if e[1] not in self._held and is_stub(e[3])]
        until_s = self._now_s() + BUDGET_S
        while missing and (left_s := until_s - self._now_s()) > 0:
            size_bytes = sum(body_bytes(entry[3]) for entry in missing)
            gap = min(JUMP_RECORDS, JUMP_BYTES * len(missing) // max(size_bytes, 1))
            chunk = _chunk(missing, gap, left_s)
            records = self._read_back(sorted(entry[1] for entry in chunk), gap)
            for entry in chunk:
                whole = self._made_whole(entry, records.get(entry[1]))
                self._held[entry[1]] = whole
                self._held_bytes += len(whole[3])
            del missing[: len(chunk)]

    def _made_whole(self, entry: Entry, record: Message | None) -> Entry:
        if record is None:
            return (*entry[:3], GONE_BODY)
        parsed = self._read(record)
        assert isinstance(parsed, Scheduled), entry
        assert parsed.entry[:3] == entry[:3], (entry, parsed.entry[:3])
        return parsed.entry


def _stubbed(entry: Entry) -> Entry:
    """Replace the body by a stub, unless the body is from a record at another offset."""
    if has_purpose(entry[3]) and delivery_of(entry).offset != entry[1]:
        return entry
    return (*entry[:3], stub(entry[3]))


def _fitting(entries: list[Entry], max_bytes: int) -> list[Entry]:
    size_bytes = 0
    for index, entry in enumerate(entries):
        size_bytes += body_bytes(entry[3])
        if size_bytes > max_bytes and index:
            return entries[:index]
    return entries


def _chunk(entries: Sequence[Entry], gap: int, left_s: float) -> Sequence[Entry]:
    """Return the first entries that can be read in about `left_s`. A large chunk costs less for
    each entry, because its offsets lie closer together."""
    chunk = entries
    while len(chunk) > LEAST_CHUNK and _cost_s(chunk, gap) > left_s:
        chunk = chunk[: len(chunk) // 2]
    return chunk


def _cost_s(entries: Sequence[Entry], gap: int) -> float:
    offsets = sorted(entry[1] for entry in entries)
    steps = (after - before for before, after in pairwise(offsets))
    return JUMP_S * (1 + sum(min(step / max(gap, 1), 1) for step in steps))


# Folders are measured a little at a time, because due records must not wait. Thousands of files
# take tens of milliseconds.

EVERY_S: Final = 10.0
LOOK_S: Final = 0.002


class FolderSizes:
    """Measures folders, file by file. The pause between two rounds is EVERY_S."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._files: Iterator[Path] | None = None
        self._sum_bytes, self._next_s = 0, now_s()

    def look(self, folders: Iterable[Path]) -> int | None:
        """Measure for about LOOK_S. Return the sum at the end of a round, else None."""
        if self._files is None:
            if self._now_s() < self._next_s:
                return None
            self._files, self._sum_bytes = _files(list(folders)), 0
        until_s = self._now_s() + LOOK_S
        for file in self._files:
            with suppress(FileNotFoundError):
                self._sum_bytes += file.stat().st_blocks * 512
            if self._now_s() > until_s:
                return None
        self._files, self._next_s = None, self._now_s() + EVERY_S
        return self._sum_bytes


def _files(folders: Iterable[Path]) -> Iterator[Path]:
    for top in folders:
        for folder, _, names in os.walk(top):
            yield from (Path(folder, name) for name in names)


FILES_EACH: Final = 64
"""Approximate number of open files and mappings of a busy partition."""
FILES_BESIDE: Final = 256
"""Approximate number of other open files: of connections, clients and libraries."""


def size_and_free_bytes(folder: Path) -> tuple[int, int]:
    """Return the size of the folder's disk, and its free bytes."""
    size_bytes, _used, free_bytes = shutil.disk_usage(folder)
    return size_bytes, free_bytes


def raise_open_files() -> None:
    """Raise the limit on open files to the allowed maximum. The default of 1,024 is too low."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def warn_of_few_open_files(partitions: int) -> None:
    """Warn if a worker with all partitions could run out of open files."""
    limit, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = FILES_BESIDE + FILES_EACH * partitions
    if limit not in (resource.RLIM_INFINITY, -1) and limit < needed:
        log.warning(
            "limit of open files is low: a worker that gets all partitions may not be able to "
            "open their files",
            allowed=limit,
            partitions=partitions,
            remedy=f"raise the limit (ulimit -n, LimitNOFILE) to {needed}",
        )


# Each pair of partition and topic id has a folder in the data folder. The data folder belongs to
# one `run` at a time. A shard's folder belongs to one worker.

STUBS: Final = "stubs"
"""File in a shard's folder. If it exists, some entries may have stubs instead of bodies."""
COMMITTED: Final = "committed"
"""File in a shard's folder. If it exists, the shard's partition has had a committed offset, and
must not start over."""
IDS: Final = "ids"
LOCK_FILE: Final = "lock"
SHARD: Final = re.compile(r"-\d+@[^@]+$")
"""Part of the name of a shard's folder. A folder that is put aside keeps this part."""
OURS: Final = re.compile(rf"^{LOCK_FILE}$|^{MEMBER_FILE}\d+$|{SHARD.pattern}")
OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
LOCK_WAIT_S: Final = 30.0
"""Longest wait for a shard's folder that the previous worker still has open."""


def open_to_others(data_dir: Path) -> Iterator[Path]:
    """Yield the proxy's files and folders that other users may read. Files of another user are left
    out, for example the root of a mounted volume."""
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
    """Lock the data folder, and close its files to other users. Raises DataDirInUse if another
    `run` has it, DataDirUnusable if it cannot be written."""
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


def is_in_use(data_dir: Path) -> bool:
    """Return whether a running proxy has the data folder."""
    try:
        with (data_dir / LOCK_FILE).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


class LocalState:
    """Opens shards' folders at the committed position. The marker file STUBS stays until the folder
    is opened without `stores_stubs` and has no pending record."""

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
        """Return whether this partition ever had a commit, even with an earlier topic id."""
        return any(self._data_dir.glob(f"{self._topic}-{partition}@*/{COMMITTED}"))

    def mark_committed(self, partitions: Iterable[int]) -> None:
        """Note that these partitions have committed offsets. Errors, for example of a full disk,
        are ignored, because the settings topic has the same note."""
        for folder in self.folders(partitions):
            with suppress(OSError):
                (folder / COMMITTED).touch()

    def open(self, partition: int, position: Position) -> Store:
        """Open the store. Wait while another worker still has the folder open."""
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
        """Open the register of ids. After a crash the register can be ahead of a RocksDB store,
        which loses the entries in its memory. Then begin with an empty register, because a replay
        into the old register would skip ids."""
        folder = self._folder(partition) / IDS
        register = open_register(folder, replace(_committed(at), next_offset=covered))
        if register.report.aside is not None:
            log.warning(
                "id register put aside; it is rebuilt from the broker",
                folder=str(folder),
                why=register.report.detail,
                aside=str(register.report.aside),
            )
        return register

    def has_stubs(self, partition: int) -> bool:
        return (self._folder(partition) / STUBS).exists()

    def folders(self, partitions: Iterable[int]) -> list[Path]:
        return [self._folder(partition) for partition in partitions]

    def disk_size_and_free_bytes(self) -> tuple[int, int]:
        return size_and_free_bytes(self._data_dir)

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
        marker = folder / STUBS
        try:
            if self._stores_stubs:
                _create_durably(marker)
            elif marker.exists() and not store.pending():
                marker.unlink()
        except OSError as error:
            store.close()
            raise StorageFull(folder, error) from error
        return store


def _committed(at: Position) -> Committed:
    distrusted = -1 if at.set_back is None else at.set_back.below
    return Committed(at.watermark_ms, at.cursor, at.floor, at.next_offset, distrusted)


def _create_durably(marker: Path) -> None:
    """Create the marker durably. Without it stubs would be taken for bodies."""
    marker.touch()
    for path in (marker, marker.parent):
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
