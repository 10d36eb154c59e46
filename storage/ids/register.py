"""The register: the state of each id of a shard, in an LSM tree of memtables and sorted runs."""

import shutil
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import compress
from pathlib import Path
from typing import TypeAlias

import numpy as np

from storage.errors import StorageFull, StoreDamaged
from storage.folder import DamageGuard, Files, boot_id, damage_noted
from storage.ids.layout import (
    MANIFEST,
    Hashing,
    IdHash,
    Manifest,
    RunContents,
    Words,
    bits_of,
    new_manifest,
    padded,
    read_manifest,
)
from storage.ids.memtable import IdMemtable, Links, Tombstones, rounded_end_ms
from storage.ids.runs import Ended, Merge, Run, path_of
from storage.options import IdOptions
from storage.store import Committed, Key, Named, OpenReport, TargetCounts
from storage.tier import refuse_ahead


def runs_to_merge(sizes: Sequence[int], least: int, most: int) -> int:
    """Return how many of the newest runs to merge, or 0. `sizes` has the oldest run first.

    Merge as many as possible, but at least `least`. The oldest merged run must not be larger than
    the other merged runs together. If no number fits and there are `most` runs, merge `least`. With
    a `least` of 8, merges copy a row about once in 30 flushes, and 3.6 times in 1,000 flushes."""
    best, newer = 0, 0
    for count, size in enumerate(reversed(sizes), 1):
        if count >= least and size <= newer:
            best = count
        newer += size
    return least if len(sizes) >= most and not best else best


def is_mostly_useless(useless: Sequence[int], sizes: Sequence[int], least: int) -> bool:
    """Return whether a merge of all runs would drop enough rows."""
    return sum(useless) > max(least, sum(sizes) // 2)


Steps: TypeAlias = Generator[None, None, None]
Confirm: TypeAlias = Callable[[list[Run]], None]


class Lsm:
    """The memtables and runs of a register. Each step does part of one flush and one merge.

    A change is first in `active`, then in `immutable`, then in `runs` or `written_links`. A run is
    written before the manifest. Merged runs are removed last. Opening removes unlisted files."""

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        runs: Sequence[Run],
        committed: Committed,
        options: IdOptions,
        files: Files,
        hashing: Hashing,
    ) -> None:
        self.runs = list(runs)
        self.active = IdMemtable()
        self.immutable: IdMemtable | None = None
        self.is_closing = False
        """Whether `active` must be closed before the changes of the next offset."""
        self.is_flush_requested = False
        self.covered = manifest.covered
        self.settled = manifest.covered
        """Changes below this offset are complete and committed."""
        self.floor = 0
        """The highest committed floor."""
        self.ended: Key = (committed.watermark_ms, committed.cursor)
        self.written_links = Links(manifest.links)
        self.links = Links(manifest.links)
        self.tombstones = Tombstones(self.ended, options.most_names)
        self._folder = folder
        self._seed = manifest.seed
        self._options = options
        self._files = files
        self._hashing = hashing
        self._next_number = 1 + max((run.summary.number for run in runs), default=-1)
        self._writing: Steps | None = None
        self._merging: Steps | None = None
        self._is_tidy = False
        self._floor_looked_at = 0
        self._attach_tombstones()
        self.tombstones.count()

    @property
    def memtables(self) -> list[IdMemtable]:
        return [self.active] if self.immutable is None else [self.active, self.immutable]

    def settle(self, settled_offset: int, floor: int) -> None:
        self.settled = max(self.settled, settled_offset)
        self.floor = max(self.floor, floor)
        self.links.forget(self.floor, self.ended[0])
        self.written_links.forget(self.floor, self.ended[0])

    def close_active(self) -> None:
        assert self.immutable is None
        self.immutable, self.active = self.active, IdMemtable()
        self.is_closing = self.is_flush_requested = False
        self._attach_tombstones()

    def step(self) -> bool:
        """Do one step of writing and one of merging. Return whether more work is left."""
        self._begin_writing(at_once=False)
        self._step_writing()
        if self.floor - self._floor_looked_at >= self._options.replayed_offsets:
            self._is_tidy = False
        if self._merging is None and not self._is_tidy:
            self._begin_merging()
        steps, self._merging = self._merging, None
        self._merging = _stepped(steps)
        return self._writing is not None or self._merging is not None or not self._is_tidy

    def write_all(self) -> None:
        self._finish_writing()
        for _ in self.memtables:
            self._begin_writing(at_once=True)
            self._finish_writing()
        if self._coverable() > self.covered:
            self._replace_manifest(self.runs, self.written_links)

    def close(self) -> None:
        """Release the files. Unfinished files stay, as after a crash."""
        for steps in (self._writing, self._merging):
            if steps is not None:
                steps.close()
        self._writing = self._merging = None
        self.runs = []
        self._attach_tombstones()

    def _attach_tombstones(self) -> None:
        self.tombstones.attach((memtable.tombstones for memtable in self.memtables), self.runs)

    def _coverable(self, written: IdMemtable | None = None) -> int:
        left = [table for table in self.memtables if table is not written and table.first >= 0]
        return max(self.covered, min([self.settled, *(table.first for table in left)]))

    def _finish_writing(self) -> None:
        while self._writing is not None:
            self._step_writing()

    def _step_writing(self) -> None:
        steps, self._writing = self._writing, None
        self._writing = _stepped(steps)

    def _begin_writing(self, *, at_once: bool) -> None:
        if self._writing is not None:
            return
        if self.immutable is None and (at_once or self._is_full() or self._is_behind()):
            self._make_immutable()
        immutable = self.immutable
        has_room = at_once or len(self.runs) < self._options.most_runs
        if immutable is not None and immutable.last < self.settled and has_room:
            self._writing = self._write_memtable(immutable)

    def _make_immutable(self) -> None:
        active = self.active
        is_unsettled = active.first < 0 or active.first >= self.settled
        if is_unsettled and self._coverable() - self.covered >= self._most_behind:
            self._replace_manifest(self.runs, self.written_links)
            self.is_flush_requested = False
        if active.first >= 0 and active.last < self.settled:
            self.close_active()
        else:
            self.is_closing = self._is_full() or not is_unsettled

    def _is_full(self) -> bool:
        active, options = self.active, self._options
        is_heavy = active.text_bytes >= options.memtable_bytes
        return is_heavy or len(active) >= options.memtable_entries

    def _is_behind(self) -> bool:
        return self.settled - self.covered >= self._most_behind

    @property
    def _most_behind(self) -> int:
        return 1 if self.is_flush_requested else self._options.replayed_offsets

    def _write_memtable(self, memtable: IdMemtable) -> Steps:
        made: list[RunContents] = []
        yield from memtable.contents(self._hashing, self._options.write_entries, made)
        yield

        def confirm(fresh: list[Run]) -> None:
            links = Links([*self.written_links.all(), *memtable.links])
            self._replace_manifest([*self.runs, *fresh], links, written=memtable)

        yield from self._make_run(made, self.runs, confirm)
        yield from memtable.free_memory(self._options.write_entries)

    def _begin_merging(self) -> None:
        """Choose runs to merge. Set `_is_tidy` if there are none."""
        self._floor_looked_at = self.floor
        sizes = [run.size for run in self.runs]
        useless = [run.useless_rows(self.floor, self.ended) for run in self.runs]
        count = runs_to_merge(sizes, self._options.merged_runs, self._options.most_runs)
        if is_mostly_useless(useless, sizes, self._options.memtable_entries):
            count = len(sizes)
        if count:
            older = len(sizes) - count
            self._merging = self._merge_runs(self.runs[:older], self.runs[older:])
        else:
            self._is_tidy = True

    def _merge_runs(self, older: list[Run], replaced: list[Run]) -> Steps:
        for run in replaced:
            for _ in run.check():
                yield

        def confirm(fresh: list[Run]) -> None:
            newer = self.runs[len(older) + len(replaced) :]
            self._replace_manifest([*older, *fresh, *newer], self.written_links)

        yield from self._make_run([run.contents for run in replaced], older, confirm)
        for run in replaced:
            yield
            self._files.remove(run.path)

    def _make_run(
        self, sources: list[RunContents], older: Sequence[Run], confirm: Confirm
    ) -> Steps:
        merge = Merge(
            sources,
            list(older),
            lambda: Ended(self.floor, self.ended),
            self._options.merge_entries,
        )
        number, self._next_number = self._next_number, self._next_number + 1
        try:
            made = yield from merge.steps(self._folder, number, self._files)
            confirm([] if made is None else [Run(self._folder, made, self._hashing)])
        except Exception:
            self._files.remove(path_of(self._folder, number))
            raise
        if made is None:
            self._files.remove(path_of(self._folder, number))

    def _replace_manifest(
        self, runs: list[Run], links: Links, *, written: IdMemtable | None = None
    ) -> None:
        covered = self._coverable(written)
        manifest = Manifest(
            seed=self._seed,
            covered=covered,
            watermark_ms=self.ended[0],
            cursor=self.ended[1],
            links=links.all(),
            runs=[run.summary for run in runs],
            boot_id=boot_id(),
        )
        self._files.replace(self._folder / MANIFEST, manifest.to_bytes())
        self.covered = covered
        self.runs, self.written_links = runs, links
        if written is not None:
            self.immutable = None
        self._attach_tombstones()
        self._is_tidy = False


def _stepped(steps: Steps | None) -> Steps | None:
    if steps is None:
        return None
    try:
        next(steps)
    except StopIteration:
        return None
    return steps


OF_KIND_ROWS = 16_384
NO_HASHES = np.zeros(0, np.uint64)


class Register:
    """The ids of one shard. Any call may raise StoreDamaged.

    `at` is the ingress offset that causes a change. It never falls. An id may be forgotten once
    its entry has ended, and its entry and last record (`Named.offset`, `latest`) are below F."""

    def __init__(
        self,
        lsm: Lsm,
        hashing: Hashing,
        few_ids: int,
        guard: DamageGuard,
        report: OpenReport,
    ) -> None:
        self.report = report
        self._lsm = lsm
        self._hashing = hashing
        self._few_ids = few_ids
        self._guard = guard
        self._at = -1

    @property
    def covered(self) -> int:
        """Changes caused by lower offsets are on disk."""
        return self._lsm.covered

    @property
    def memtable_bytes(self) -> int:
        """The approximate memory of changes not on disk."""
        active, immutable = self._lsm.active, self._lsm.immutable
        return active.weight_bytes + (0 if immutable is None else immutable.weight_bytes)

    def find(self, ids: Iterable[bytes]) -> dict[bytes, Named]:
        asked = ids if isinstance(ids, Sequence) else list(ids)
        found: dict[bytes, Named] = {}
        memtables, runs = self._lsm.memtables, self._lsm.runs
        needs_hashes = bool(runs) or any(memtable.new for memtable in memtables)
        hashes = self._hashing(padded(asked)) if needs_hashes else NO_HASHES
        for memtable in reversed(memtables):
            memtable.find(asked, hashes, found)
        if runs:
            with self._guard.reading:
                self._find_on_disk(asked, hashes, found)
        return found

    def put(self, at: int, ident: bytes, named: Named) -> None:
        """Set the state of `ident` from `at` on."""
        if at != self._at:
            self._move_to(at)
        self._lsm.active.put(ident, named)

    def put_if_new(
        self,
        ids: Sequence[bytes],
        fires_ms: Sequence[int],
        offsets: Sequence[int],
        targets: Sequence[str],
    ) -> bool:
        """Put one or more ids in offset order. The record at `offsets[i]` is the entry of `ids[i]`.

        Rewritten records are not allowed. If an id may be known or occurs twice, put nothing and
        return False."""
        if len(ids) < self._few_ids:
            return self._put_few_if_new(ids, fires_ms, offsets, targets)
        idents = padded(ids)
        hashes = self._hashing(idents)
        if self._has_any(ids, hashes):
            return False
        self._move_to(offsets[0])
        active = self._lsm.active
        active.put_new(idents, hashes, fires_ms, offsets, targets)
        active.last = self._at = offsets[-1]
        return True

    def add_tombstone(self, at: int, key: Key, target: str) -> None:
        """Add a tombstone for the entry `key`, ended by the record at `at`. Ignore known keys."""
        if at != self._at:
            self._move_to(at)
        self._lsm.active.meet(target)
        self._lsm.tombstones.add(self._lsm.active.tombstones, key, target)

    def tombstones(self, after: Key, upto: Key) -> set[Key]:
        """Return the keys of deleted entries in (after, upto]."""
        return self._lsm.tombstones.between(after, upto)

    def deleted(self, keys: Sequence[Key]) -> set[Key]:
        """Return the deleted keys among sorted `keys`."""
        return self._lsm.tombstones.among(keys)

    def tombstones_by_target(self) -> TargetCounts:
        """Count deleted entries beyond the watermark by target."""
        return self._lsm.tombstones.by_target.shown()

    def link(self, at: int, low: int, high: int, until_ms: int | None) -> None:
        """Forbid floors in (low, high] until the watermark is beyond `until_ms` (None: forever).

        A recovery that ingests offset `high` again must ingest offset `low` before. The committed
        floor is at most `low`."""
        if at != self._at:
            self._move_to(at)
        link = low, high, rounded_end_ms(until_ms, self._lsm.ended[0])
        self._lsm.active.links.append(link)
        self._lsm.links.add(link)

    def lowered(self, floor: int) -> int:
        return self._lsm.links.lowered(floor)

    def of_kind(self, bit: int) -> Iterator[tuple[bytes, Named]]:
        """Yield ids with this bit of `kind` and an entry beyond the watermark."""
        seen: set[bytes] = set()
        with self._guard.reading:
            for ids in self._may_be_of_kind(bit):
                unseen = [ident for ident in ids if ident not in seen]
                for ident, named in self.find(unseen).items():
                    if named.kind & bit and named.key > self._lsm.ended:
                        seen.add(ident)
                        yield ident, named

    def advance(self, watermark_ms: int, cursor: int) -> None:
        ended = (watermark_ms, cursor)
        if ended > self._lsm.ended:
            self._lsm.ended = ended
            self._lsm.tombstones.end(ended)

    def maintain(self, settled_offset: int, floor: int) -> bool:
        """Do one bounded step of work. Return whether more work is left.

        `settled_offset` is the lower of the committed next offset and the store's `covered`. While
        a recovery ingests offsets again, it is at most the next of them. The register's `covered`
        is at most `settled_offset`. Raises StorageFull if a write fails. The next call writes."""
        self._lsm.settle(settled_offset, floor)
        with self._guard.writing:
            return self._lsm.step()

    def request_flush(self) -> None:
        self._lsm.is_flush_requested = self._lsm.immutable is None

    def flush(self, settled_offset: int, floor: int) -> None:
        """Write all changes below `settled_offset`, for a clean stop."""
        self._lsm.settle(settled_offset, floor)
        with self._guard.writing:
            self._lsm.write_all()

    def close(self) -> None:
        """Release the files without writing."""
        self._lsm.close()

    def _move_to(self, at: int) -> None:
        """Begin the changes of offset `at`. No memtable closes between changes of one offset."""
        lsm = self._lsm
        if at < self._at or at < lsm.settled:
            raise ValueError(
                f"a change at offset {at} is out of order: the last change was at {self._at}, and "
                f"offsets below {lsm.settled} are settled"
            )
        if lsm.is_closing and lsm.immutable is None:
            lsm.close_active()
        if lsm.active.first < 0:
            lsm.active.first = at
        lsm.active.last = self._at = at

    def _put_few_if_new(
        self,
        ids: Sequence[bytes],
        fires_ms: Sequence[int],
        offsets: Sequence[int],
        targets: Sequence[str],
    ) -> bool:
        if len(set(ids)) < len(ids) or self.find(ids):
            return False
        for ident, time_ms, at, target in zip(ids, fires_ms, offsets, targets, strict=True):
            self.put(at, ident, Named(at, time_ms, at, at, time_ms, target))
        return True

    def _has_any(self, ids: Sequence[bytes], hashes: Words) -> bool:
        in_order = np.sort(hashes)
        if (in_order[1:] == in_order[:-1]).any():
            return True
        bits = bits_of(in_order)
        if any(memtable.has_any(ids, in_order, bits) for memtable in self._lsm.memtables):
            return True
        with self._guard.reading:
            return any(run.has_any(in_order, bits) for run in self._lsm.runs)

    def _find_on_disk(
        self, asked: Sequence[bytes], hashes: Words, found: dict[bytes, Named]
    ) -> None:
        left: Sequence[bytes] = asked
        if found:
            is_left = np.fromiter((ident not in found for ident in asked), np.bool_, len(asked))
            left, hashes = list(compress(asked, is_left.tolist())), hashes[is_left]
        for run in reversed(self._lsm.runs):
            if not left:
                return
            indices, known = run.find(hashes, left)
            if known:
                found.update(zip(map(left.__getitem__, indices.tolist()), known, strict=True))
                unmet = np.delete(np.arange(len(left)), indices)
                left, hashes = [left[index] for index in unmet.tolist()], hashes[unmet]

    def _may_be_of_kind(self, bit: int) -> Iterator[list[bytes]]:
        for memtable in self._lsm.memtables:
            yield [ident for ident, named in memtable.ids.items() if named.kind & bit]
        for run in reversed(self._lsm.runs):
            yield from run.of_kind(bit, self._lsm.ended, OF_KIND_ROWS)


def open_register(
    folder: Path,
    committed: Committed,
    options: IdOptions | None = None,
    *,
    files: Files | None = None,
    hashing: Hashing | None = None,
) -> Register:
    """Open or create the register. The caller holds the shard's lock.

    The caller then ingests [register.covered, committed.next_offset) again. A register that is
    damaged or ahead of the broker is moved to `<folder>.broken`. An older folder there is deleted.
    A register that covers only offsets below the floor is emptied. Raises StorageFull."""
    files = files or Files()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        report, manifest, runs = OpenReport("new"), new_manifest(), list[Run]()
        try:
            found = _trusted(folder, committed)
            if found is not None and found.covered < committed.floor:
                files.remove(folder / MANIFEST)  # changes below the floor are not needed
            elif found is not None:
                hash_of = hashing or IdHash(bytes.fromhex(found.seed))
                runs = [Run(folder, summary, hash_of) for summary in found.runs]
                manifest = found
                _survived_restart(manifest, runs)
                report = OpenReport("reopened")
        except (StoreDamaged, ValueError, KeyError, TypeError) as damage:
            manifest, runs = new_manifest(), []
            report = OpenReport("put aside", str(damage), _put_aside(folder, files))
        _remove_unknown(folder, runs, files)
        options = options or IdOptions()
        hashing = hashing or IdHash(bytes.fromhex(manifest.seed))
        lsm = Lsm(folder, manifest, runs, committed, options, files, hashing)
        return Register(lsm, hashing, options.few_ids, DamageGuard(folder, files), report)
    except OSError as error:
        raise StorageFull(folder, error) from error


def _trusted(folder: Path, committed: Committed) -> Manifest | None:
    damage = damage_noted(folder)
    if damage is not None:
        raise StoreDamaged(damage)
    try:
        manifest = read_manifest(folder / MANIFEST)
    except FileNotFoundError:
        return None
    ended = (manifest.watermark_ms, manifest.cursor)
    refuse_ahead(folder, manifest.covered, ended, committed)
    return manifest


def _survived_restart(manifest: Manifest, runs: list[Run]) -> None:
    """Check all runs if the machine restarted, because the restart may have lost writes."""
    if manifest.boot_id and manifest.boot_id == boot_id():
        return
    for run in runs:
        for _ in run.check():
            pass


def _put_aside(folder: Path, files: Files) -> Path:
    aside = folder.with_name(f"{folder.name}.broken")
    shutil.rmtree(aside, ignore_errors=True)
    files.rename(folder, aside)
    folder.mkdir()
    return aside


def _remove_unknown(folder: Path, runs: list[Run], files: Files) -> None:
    known = {run.path for run in runs} | {folder / MANIFEST}
    for path in set(folder.iterdir()) - known:
        files.remove(path)
