"""A store of two tiers: new entries in memory, the others on disk."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias
from zlib import crc32

from storage.counts import Counts, DueHistogram, TargetCounter, TargetNumbers
from storage.errors import StorageFull, StoreDamaged, StoreMismatch
from storage.folder import (
    CHECKPOINT,
    Checkpoint,
    DamageGuard,
    Files,
    FolderLock,
    damage_noted,
    kind_of,
)
from storage.memtable import NEAR_MS, Memtable
from storage.options import Options, StoreKind
from storage.store import (
    PEEK_BYTES,
    Committed,
    Due,
    Entry,
    Key,
    OpenReport,
    Scanned,
    TargetCounts,
    Wants,
    dues_of,
    first_scanned,
    fitting,
)

# The numbers of an open shard: its watermark, floor, what is covered, what pends on disk.


@dataclass(slots=True)
class Ledger:
    """(watermark_ms, cursor): what has ended. counted: the same when the folder was opened, as
    far as `counts` reflect it. floor: nothing below it pended then. covered: offsets below it are
    in the files. next_offset: offsets below it are committed and were put here. counts: entries on
    disk that pend."""

    watermark_ms: int
    cursor: int
    counted: tuple[int, int]
    floor: int
    covered: int
    next_offset: int
    counts: Counts

    @property
    def ended(self) -> tuple[int, int]:
        """(watermark_ms, cursor)."""
        return self.watermark_ms, self.cursor


# What a kind of store must do on disk so that a `TieredStore` can put memtables in front of it.


class DiskTier(Protocol):
    """The entries on disk that pend, and their counts in the shard's `Ledger`.

    What reads may raise StoreDamaged, and all may raise OSError."""

    @property
    def peeked_bytes(self) -> int:
        """What the bodies take that were peeked at and have not ended."""
        ...

    def peek(self, until_ms: int, max_entries: int, max_bytes: int) -> Due:
        """The first `max_entries` entries due by `until_ms`, fewer if they are large: bodies are
        read as long as all that were peeked at take at most `max_bytes`, one at least."""
        ...

    def next_due_ms(self, until_ms: int) -> int | None:
        """The earliest due; None, or one later than `until_ms`, when none is due by then."""
        ...

    def forget(self, ended: Key) -> None:
        """Count out every entry at or below `ended`, which is the ledger's watermark by now."""
        ...

    def count_dues(self, histogram: DueHistogram) -> None:
        """Add about when the entries are due to `histogram`."""
        ...

    def scan(
        self, after: Key, until_ms: int, wants: Wants, max_entries: int, max_bytes: int
    ) -> Scanned:
        """As `Store.scan`, of the entries on disk; `after` is not below what has ended. What was
        peeked at or loaded stays as it is."""
        ...

    def load(self, budget_entries: int) -> int:
        """Read ahead what is due soon, and look for damage; how many entries that was worth."""
        ...

    @property
    def is_loading(self) -> bool:
        """Whether `load` has more to do."""
        ...

    @property
    def wants_compaction(self) -> bool:
        """Whether enough has ended that a `flush` would give space back."""
        ...

    def flush(self, memtable: Memtable | None, coverable: Callable[[], int]) -> Iterator[int]:
        """Write a memtable, which changes no more but for what ends, compact, and replace the
        checkpoint with one that covers `coverable()`, asked at that instant.

        Yields about how many entries each step was worth. When the last step has been done the
        entries are read from disk and counted in the ledger, until then they are read from the
        memtable. When a step raises OSError, it is as if none had been done; once the checkpoint
        counts, whatever goes wrong is StoreDamaged."""
        ...

    def persist(self) -> None:
        """Let what was flushed survive the end of the process."""
        ...

    def close(self) -> None:
        """Give the files back; writes nothing."""
        ...


# The `Store` of every kind: memtables for what is new, a disk tier for the rest.

_key_of = itemgetter(0, 1)


class TieredStore:
    """One shard. Entries are in the active memtable, which takes new ones, in the immutable one,
    which is written once all of it is committed, or in the disk tier.

    What ends before it is written never touches the disk."""

    def __init__(
        self,
        folder: Path,
        tier: DiskTier,
        ledger: Ledger,
        options: Options,
        report: OpenReport,
        guard: DamageGuard,
        unlock: Callable[[], None],
    ) -> None:
        self.report = report
        self._tier = tier
        self._ledger = ledger
        self._options = options
        self._guard = guard
        self._unlock = unlock
        self._phase_ms = crc32(folder.name.encode()) % NEAR_MS
        self._numbers = ledger.counts.targets.numbers
        self._active = Memtable(self._numbers, ledger.watermark_ms, self._phase_ms)
        self._immutable: Memtable | None = None
        self._flushing: Iterator[int] | None = None
        self._flushed: Memtable | None = None
        self._is_flush_requested = False
        self._last_offset = ledger.covered - 1

    @property
    def covered(self) -> int:
        """Every ingress offset below this is on disk or has ended."""
        return self._ledger.covered

    @property
    def memtable_bytes(self) -> int:
        """The weights of the memtables; one that is being written counts until it is."""
        immutable = self._immutable
        return self._active.weight_bytes + (0 if immutable is None else immutable.weight_bytes)

    @property
    def peeked_bytes(self) -> int:
        """What the disk tier holds of bodies."""
        return self._tier.peeked_bytes

    def put(self, entries: Iterable[Entry]) -> None:
        """Take entries into the active memtable."""
        batch = entries if isinstance(entries, list) else list(entries)
        if not batch:
            return
        if batch[0][1] <= self._last_offset:
            raise ValueError(f"offset {batch[0][1]} comes after {self._last_offset}")
        dues_ms = dues_of(batch)
        if dues_ms.min() <= self._ledger.watermark_ms and min(batch)[:2] <= self._ledger.ended:
            raise ValueError(f"{min(batch)[:2]} is not beyond the watermark {self._ledger.ended}")
        self._last_offset = batch[-1][1]
        self._active.put(batch, dues_ms)

    def due(self, now_ms: int, max_entries: int, max_bytes: int = PEEK_BYTES) -> Due:
        """Merge what is due in the disk tier and in the memtables."""
        found = self._merged(now_ms, max_entries, max_bytes)
        if self._tier.peeked_bytes + self.memtable_bytes <= max_bytes:
            return found
        entries = fitting(found.entries, max_bytes)
        return Due(entries, is_all=found.is_all and entries is found.entries)

    def _merged(self, now_ms: int, max_entries: int, max_bytes: int) -> Due:
        with self._guard.reading:
            found = self._tier.peek(now_ms, max_entries, max_bytes)
        parts = [memtable.peek(now_ms, max_entries) for memtable in self._memtables()]
        if not any(parts):
            return found
        merged = [entry for part in (found.entries, *parts) for entry in part]
        merged.sort(key=_key_of)
        if not found.is_all and found.entries:
            del merged[bisect_right(merged, found.entries[-1][:2], key=_key_of) :]
        del merged[max_entries:]
        return Due(merged, is_all=found.is_all and len(merged) < max_entries)

    def advance(self, watermark_ms: int, cursor: int) -> None:
        """Forget what has ended, in memory and on disk."""
        ended = (watermark_ms, cursor)
        if ended <= self._ledger.ended:
            return
        self._ledger.watermark_ms, self._ledger.cursor = ended
        for memtable in self._memtables():
            memtable.forget(ended)
        with self._guard.reading:
            self._tier.forget(ended)

    def next_due_ms(self, until_ms: int) -> int | None:
        """The earliest due at or before `until_ms`, wherever the entry is."""
        with self._guard.reading:
            first_ms = self._tier.next_due_ms(until_ms)
        for memtable in self._memtables():
            due_ms = memtable.next_due_ms(until_ms)
            if due_ms is not None and (first_ms is None or due_ms < first_ms):
                first_ms = due_ms
        return first_ms if first_ms is not None and first_ms <= until_ms else None

    def floor(self, next_offset: int) -> int:
        """The start of the lowest chunk of offsets in which an entry pends."""
        chunks = [counts.chunks.floor() for counts in self._counts()]
        lowest = min((chunk for chunk in chunks if chunk is not None), default=next_offset)
        return min(next_offset, max(lowest, self._ledger.floor))

    def pending(self) -> int:
        """How many entries pend, on disk and in memory."""
        return self._ledger.counts.total + sum(map(len, self._memtables()))

    def pending_by_target(self) -> TargetCounts:
        """How many entries pend for each target, on disk and in memory."""
        return self._joined(counts.targets for counts in self._counts())

    def pending_bytes(self) -> int:
        """What the bodies of pending entries take, on disk and in memory."""
        return sum(counts.total_bytes for counts in self._counts())

    def pending_bytes_by_target(self) -> TargetCounts:
        """The same for each target."""
        return self._joined(counts.target_bytes for counts in self._counts())

    def pending_by_time(self, edges_ms: Sequence[int]) -> list[int]:
        """Exact in memory; on disk as exact as the tier knows it without reading."""
        histogram = DueHistogram(edges_ms)
        for memtable in self._memtables():
            memtable.count_dues(histogram)
        self._tier.count_dues(histogram)
        return histogram.whole()

    def scan(
        self, after: Key, until_ms: int, wants: Wants, max_entries: int, max_bytes: int
    ) -> Scanned:
        """Look at the disk tier and the memtables, each on its own, and merge what they show."""
        after = max(after, self._ledger.ended)
        with self._guard.reading:
            parts = [self._tier.scan(after, until_ms, wants, max_entries, max_bytes)]
        parts += [
            memtable.scan(after, until_ms, wants, max_entries) for memtable in self._memtables()
        ]
        return first_scanned(parts, max_entries, max_bytes)

    def maintain(self, next_offset: int, budget_entries: int) -> bool:
        """Read ahead, and go on flushing or begin to; in steps that fall between transactions."""
        self._ledger.next_offset = max(self._ledger.next_offset, next_offset)
        with self._guard.reading:
            spent = self._tier.load(budget_entries)
        with self._guard.writing:
            self._release_numbers()
            if self._immutable is None and self._is_full(self._active):
                self._close_active()
            if self._flushing is None and self._wants_flush():
                self._begin_flush()
            self._continue_flush(budget_entries - spent)
        return self._flushing is not None or self._tier.is_loading

    def request_flush(self) -> None:
        """Write next, if there is anything to write, and nothing waits for that already."""
        has_more = bool(len(self._active)) or self.covered < self._ledger.next_offset
        is_idle = self._immutable is None and self._flushing is None
        self._is_flush_requested = is_idle and has_more

    def flush(self, next_offset: int) -> None:
        """Write what is committed and a checkpoint, whatever is in the way first.

        Raises what reading has failed with: the counts may lag behind the watermark."""
        if self._guard.failed:
            raise self._guard.failed
        self._ledger.next_offset = max(self._ledger.next_offset, next_offset)
        with self._guard.writing:
            self._continue_flush(2**63)
            for _ in self._memtables():
                if self._immutable is None and len(self._active):
                    self._close_active()
                self._begin_flush()
                self._continue_flush(2**63)
            self._tier.persist()

    def close(self) -> None:
        """Give files and lock back."""
        try:
            with self._guard.writing:
                self._tier.close()
        finally:
            self._unlock()

    def _memtables(self) -> list[Memtable]:
        return [self._active] if self._immutable is None else [self._immutable, self._active]

    def _counts(self) -> list[Counts]:
        return [self._ledger.counts, *(memtable.counts for memtable in self._memtables())]

    def _joined(self, counters: Iterable[TargetCounter]) -> TargetCounts:
        joined = TargetCounter(self._numbers)
        for counter in counters:
            joined.merge(counter)
        return joined.shown()

    def _release_numbers(self) -> None:
        """Free the numbers of targets that nothing pends of, now and then.

        Not during a flush, which holds numbers of what has ended meanwhile."""
        if not self._numbers.wants_release or self._flushing is not None:
            return
        counted = [counts.targets for counts in self._counts()]
        if not any(targets.others for targets in counted):
            self._numbers.release({name for targets in counted for name in targets.by_name})

    def _is_full(self, memtable: Memtable) -> bool:
        options = self._options
        return bool(len(memtable)) and (
            self._is_flush_requested
            or len(memtable) >= options.memtable_entries
            or memtable.weight_bytes >= options.memtable_bytes
            or self._is_behind()
        )

    def _is_behind(self) -> bool:
        """Whether a restart would have too much to read again."""
        next_offset, most = self._ledger.next_offset, self._options.replayed_offsets
        if next_offset - self._ledger.covered < most:
            return False
        return next_offset - self.floor(next_offset) >= most

    def _close_active(self) -> None:
        self._immutable = self._active
        self._active = Memtable(self._numbers, self._immutable.scanned_ms, self._phase_ms)

    def _wants_flush(self) -> bool:
        if self._immutable is not None:
            return self._is_committed(self._immutable)
        return self._is_flush_requested or self._tier.wants_compaction or self._is_behind()

    def _is_committed(self, memtable: Memtable) -> bool:
        return memtable.last_offset < self._ledger.next_offset

    def _begin_flush(self) -> None:
        self._is_flush_requested = False
        immutable = self._immutable
        is_written = immutable is not None and self._is_committed(immutable)
        self._flushed = immutable if is_written else None
        self._flushing = self._tier.flush(self._flushed, self._coverable)

    def _continue_flush(self, budget_entries: int) -> None:
        spent = 0
        while self._flushing is not None and spent < budget_entries:
            steps, self._flushing = self._flushing, None
            step = next(steps, None)
            if step is not None:
                spent, self._flushing = spent + step, steps
            elif self._flushed is not None:
                self._immutable = self._flushed = None

    def _coverable(self) -> int:
        """What is covered once the memtable being flushed is on disk."""
        left = [memtable for memtable in self._memtables() if memtable is not self._flushed]
        firsts = [memtable.first_offset for memtable in left if memtable.first_offset is not None]
        return max(self._ledger.covered, min([self._ledger.next_offset, *firsts]))


# Opening a shard's folder at the broker's committed offset, whatever its kind.


@dataclass(frozen=True, slots=True)
class Opening:
    """What a kind is told to open its disk tier."""

    folder: Path
    kind: StoreKind
    committed: Committed
    options: Options
    files: Files

    def ledger(self, checkpoint: Checkpoint, bound: dict[str, int]) -> Ledger:
        """The ledger to begin with. Raises StoreDamaged when the checkpoint is ahead of the broker,
        StoreMismatch when it was made with other numbers than `bound`."""
        at = self.committed
        ended = (checkpoint.watermark_ms, checkpoint.cursor)
        refuse_ahead(self.folder, checkpoint.covered, ended, at)
        for name, asked in bound.items():
            if checkpoint.options.get(name) != asked:
                raise StoreMismatch(self.folder, name, checkpoint.options.get(name), asked)
        covered = min(at.next_offset, max(checkpoint.covered, at.floor))
        targets = checkpoint.counts.targets
        numbers = TargetNumbers(
            targets.numbers.by_number, self.options.most_names, is_closed=targets.others > 0
        )
        return Ledger(
            watermark_ms=at.watermark_ms,
            cursor=at.cursor,
            counted=ended,
            floor=at.floor,
            covered=covered,
            next_offset=covered,
            counts=checkpoint.counts.copy(numbers),
        )


class OpenedTier(NamedTuple):
    """A disk tier with its ledger; the options may be bounded by what the tier can take."""

    tier: DiskTier
    ledger: Ledger
    options: Options
    is_new: bool


OpenTier: TypeAlias = Callable[[Opening], OpenedTier]
"""Opens or makes a kind's files. Raises StoreDamaged, StoreMismatch, OSError."""


def open_folder(open_tier: OpenTier, opening: Opening, *, rebuild: bool) -> TieredStore:
    """Open or make a store; a folder that must not be used is put aside and an empty store given
    instead, one made otherwise than asked for only if `rebuild` is set.

    Raises StoreLocked, StoreMismatch, StorageFull."""
    try:
        lock = FolderLock(opening.folder)
    except OSError as error:
        raise StorageFull(opening.folder, error) from error
    try:
        return _trusted_or_new(open_tier, opening, lock, rebuild)
    except OSError as error:
        lock.release()
        raise StorageFull(opening.folder, error) from error
    except BaseException:
        lock.release()
        raise


def refuse_ahead(folder: Path, covered: int, ended: Key, committed: Committed) -> None:
    """Raise StoreDamaged when the folder knows more than the broker has committed."""
    if covered > committed.next_offset:
        raise StoreDamaged(
            f"{folder} covers offsets up to {covered}, but the broker's committed "
            f"offset is {committed.next_offset}: it was reset"
        )
    if 0 < covered <= committed.distrusted:
        raise StoreDamaged(
            f"{folder} covers offsets up to {covered} only, from before the watermark was set back"
        )
    if ended > (committed.watermark_ms, committed.cursor):
        raise StoreDamaged(
            f"{folder} stands at watermark {ended[0]}/{ended[1]}, beyond "
            f"the broker's {committed.watermark_ms}/{committed.cursor}"
        )


def _trusted_or_new(
    open_tier: OpenTier, opening: Opening, lock: FolderLock, rebuild: bool
) -> TieredStore:
    try:
        _refuse_marked(opening.folder, opening.kind)
        return _assembled(open_tier, opening, lock, None)
    except StoreMismatch as mismatch:
        if not rebuild:
            raise
        reason = str(mismatch)
    except (StoreDamaged, LookupError, TypeError, ValueError) as damage:
        reason = str(damage)
    aside = OpenReport("put aside", reason, lock.put_aside(opening.files))
    return _assembled(open_tier, opening, lock, aside)


def _refuse_marked(folder: Path, kind: StoreKind) -> None:
    found = kind_of(folder)
    if found not in {None, kind}:
        raise StoreMismatch(folder, "store", found, kind)
    if found is None and (folder / CHECKPOINT).exists():
        raise StoreDamaged(f"{folder} was made by an earlier version, or its {kind} is gone")
    damage = damage_noted(folder)
    if damage is not None:
        raise StoreDamaged(damage)


def _assembled(
    open_tier: OpenTier, opening: Opening, lock: FolderLock, aside: OpenReport | None
) -> TieredStore:
    tier, ledger, options, is_new = open_tier(opening)
    report = aside or OpenReport("new" if is_new else "reopened")
    guard = DamageGuard(opening.folder, opening.files)
    return TieredStore(opening.folder, tier, ledger, options, report, guard, lock.release)
