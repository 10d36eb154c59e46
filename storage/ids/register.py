"""The register of ids on disk: what is new in memory, the rest in runs."""

import shutil
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from pathlib import Path

import numpy as np

from storage.errors import StorageFull, StoreDamaged
from storage.folder import DamageGuard, Files, boot_id, damage_noted
from storage.ids.compaction import Compaction, LsmState
from storage.ids.layout import (
    MANIFEST,
    Hashing,
    IdHash,
    Manifest,
    Words,
    bits_of,
    new_manifest,
    padded,
    read_manifest,
)
from storage.ids.memtable import rounded_end_ms
from storage.ids.runs import Run
from storage.options import IdOptions
from storage.register import Key, Named
from storage.store import Committed, OpenReport, TargetCounts
from storage.tiered_store import refuse_ahead

# The `Register` on disk: memtables for what is new, sorted runs for the rest.

OF_KIND_ROWS = 16_384
NO_HASHES = np.zeros(0, np.uint64)


class DiskRegister:
    """One shard's ids. Lookups go from the newest place to the oldest: what is found first is what
    holds. `report` says how the folder was found."""

    def __init__(
        self,
        folder: Path,
        state: LsmState,
        options: IdOptions,
        files: Files,
        hashing: Hashing,
        report: OpenReport,
    ) -> None:
        self.report = report
        self._state = state
        self._hashing = hashing
        self._few_ids = options.few_ids
        self._compaction = Compaction(folder, state, options, files, hashing)
        self._guard = DamageGuard(folder, files)
        self._at = -1

    @property
    def covered(self) -> int:
        """Changes below this offset are in the runs."""
        return self._state.covered

    @property
    def memtable_bytes(self) -> int:
        """The weights of the memtables."""
        active, immutable = self._state.active, self._state.immutable
        return active.weight_bytes + (0 if immutable is None else immutable.weight_bytes)

    def find(self, ids: Iterable[bytes]) -> dict[bytes, Named]:
        """Ask the memtables, then the runs. Raises StoreDamaged."""
        asked = ids if isinstance(ids, Sequence) else list(ids)
        found: dict[bytes, Named] = {}
        memtables, runs = self._state.memtables, self._state.runs
        needs_hashes = bool(runs) or any(memtable.new for memtable in memtables)
        hashes = self._hashing(padded(asked)) if needs_hashes else NO_HASHES
        for memtable in reversed(memtables):
            memtable.find(asked, hashes, found)
        if runs:
            with self._guard.reading:
                self._find_on_disk(asked, hashes, found)
        return found

    def put(self, at: int, ident: bytes, named: Named) -> None:
        """Put into the active memtable. Raises ValueError when `at` falls, or is settled."""
        if at != self._at:
            self._move_to(at)
        self._state.active.put(ident, named)

    def put_if_new(
        self,
        ids: Sequence[bytes],
        fires_ms: Sequence[int],
        offsets: Sequence[int],
        targets: Sequence[str],
    ) -> bool:
        """Put all at once, as columns, if no hash of them is known. Raises as `put`, `find`."""
        if len(ids) < self._few_ids:
            return self._put_few_if_new(ids, fires_ms, offsets, targets)
        idents = padded(ids)
        hashes = self._hashing(idents)
        if self._has_any(ids, hashes):
            return False
        self._move_to(offsets[0])
        active = self._state.active
        active.put_new(idents, hashes, fires_ms, offsets, targets)
        active.last = self._at = offsets[-1]
        return True

    def add_tombstone(self, at: int, key: Key, target: str) -> None:
        """Put into the active memtable. Raises as `put` does."""
        if at != self._at:
            self._move_to(at)
        self._state.active.meet(target)
        self._state.tombstones.add(self._state.active.tombstones, key, target)

    def tombstones(self, after: Key, upto: Key) -> set[Key]:
        """Keys of deleted entries beyond `after`, up to and with `upto`."""
        return self._state.tombstones.between(after, upto)

    def deleted(self, keys: Sequence[Key]) -> set[Key]:
        """Those of these keys, which are in order, that belong to deleted entries."""
        return self._state.tombstones.among(keys)

    def tombstones_by_target(self) -> TargetCounts:
        """How many deleted entries have not been passed, for each target."""
        return self._state.tombstones.by_target.shown()

    def link(self, at: int, low: int, high: int, until_ms: int | None) -> None:
        """Forbid floors in (low, high] for a while. Raises as `put` does."""
        if at != self._at:
            self._move_to(at)
        link = low, high, rounded_end_ms(until_ms, self._state.ended[0])
        self._state.active.links.append(link)
        self._state.links.add(link)

    def lowered(self, floor: int) -> int:
        """The highest floor at or below `floor` that no link forbids."""
        return self._state.links.lowered(floor)

    def of_kind(self, bit: int) -> Iterator[tuple[bytes, Named]]:
        """Ids with this bit of `kind`, from all memtables and runs. Raises StoreDamaged."""
        seen: set[bytes] = set()
        with self._guard.reading:
            for ids in self._may_be_of_kind(bit):
                unseen = [ident for ident in ids if ident not in seen]
                for ident, named in self.find(unseen).items():
                    if named.kind & bit and named.key > self._state.ended:
                        seen.add(ident)
                        yield ident, named

    def advance(self, watermark_ms: int, cursor: int) -> None:
        """Forget the tombstones at or below the watermark."""
        ended = (watermark_ms, cursor)
        if ended > self._state.ended:
            self._state.ended = ended
            self._state.tombstones.end(ended)

    def maintain(self, settled_offset: int, floor: int) -> bool:
        """Do a step of writing and a step of merging."""
        self._state.settle(settled_offset, floor)
        with self._guard.writing:
            return self._compaction.step()

    def request_flush(self) -> None:
        """Write out the active memtable next, unless another one waits for that already."""
        self._state.is_flush_requested = self._state.immutable is None

    def flush(self, settled_offset: int, floor: int) -> None:
        """Write every memtable that is settled."""
        self._state.settle(settled_offset, floor)
        with self._guard.writing:
            self._compaction.write_all()

    def close(self) -> None:
        """Give the files back."""
        self._compaction.close()
        self._state.runs = []
        self._state.attach_tombstones()

    def _move_to(self, at: int) -> None:
        """Go on to changes caused at `at`. Tables are cut here alone, between two offsets: what is
        done again after a crash begins with the first change that an offset caused."""
        state = self._state
        if at < self._at or at < state.settled:
            raise ValueError(
                f"a change caused at offset {at} comes after one at {self._at}, or after "
                f"{state.settled} was said to be settled"
            )
        if state.is_closing and state.immutable is None:
            state.close_active()
        if state.active.first < 0:
            state.active.first = at
        state.active.last = self._at = at

    def _put_few_if_new(
        self,
        ids: Sequence[bytes],
        fires_ms: Sequence[int],
        offsets: Sequence[int],
        targets: Sequence[str],
    ) -> bool:
        if len(set(ids)) < len(ids) or self.find(ids):
            return False
        for ident, due_ms, at, target in zip(ids, fires_ms, offsets, targets, strict=True):
            self.put(at, ident, Named(at, due_ms, at, at, due_ms, target))
        return True

    def _has_any(self, ids: Sequence[bytes], hashes: Words) -> bool:
        """Whether two of these hashes are the same, or something seems to be known of an id."""
        in_order = np.sort(hashes)
        if (in_order[1:] == in_order[:-1]).any():
            return True
        bits = bits_of(in_order)
        if any(memtable.has_any(ids, in_order, bits) for memtable in self._state.memtables):
            return True
        with self._guard.reading:
            return any(run.has_any(in_order, bits) for run in self._state.runs)

    def _find_on_disk(
        self, asked: Sequence[bytes], hashes: Words, found: dict[bytes, Named]
    ) -> None:
        left: Sequence[bytes] = asked
        if found:
            is_left = np.fromiter((ident not in found for ident in asked), np.bool_, len(asked))
            left, hashes = list(compress(asked, is_left.tolist())), hashes[is_left]
        for run in reversed(self._state.runs):
            if not left:
                return
            indices, known = run.find(hashes, left)
            if known:
                found.update(zip(map(left.__getitem__, indices.tolist()), known, strict=True))
                unmet = np.delete(np.arange(len(left)), indices)
                left, hashes = [left[index] for index in unmet.tolist()], hashes[unmet]

    def _may_be_of_kind(self, bit: int) -> Iterator[list[bytes]]:
        for memtable in self._state.memtables:
            yield [ident for ident, named in memtable.ids.items() if named.kind & bit]
        for run in reversed(self._state.runs):
            yield from run.of_kind(bit, self._state.ended, OF_KIND_ROWS)


# Opening a shard's register at the broker's committed offset.


def open_register(
    folder: Path,
    committed: Committed,
    options: IdOptions | None = None,
    *,
    files: Files | None = None,
    hashing: Hashing | None = None,
) -> DiskRegister:
    """Open or make the register in `folder`; its `report` says how it was found.

    The folder belongs to a shard that the caller has locked. The caller then does again, in order,
    every change caused by offsets in [register.covered, committed.next_offset). What is damaged or
    ahead of the broker is put aside (one stays) and an empty register, with `covered` 0, is given
    instead; so it is when all that was covered lies below the floor: it is useless, and what came
    between is not known. `hashing` stands in for the folder's own hash. Raises StorageFull."""
    files = files or Files()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        report, manifest, runs = OpenReport("new"), new_manifest(), list[Run]()
        try:
            found = _trusted(folder, committed)
            if found is not None and found.covered < committed.floor:
                files.remove(folder / MANIFEST)  # nothing below the floor is needed any more
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
        state = LsmState(manifest, runs, committed, options.most_names)
        hashing = hashing or IdHash(bytes.fromhex(manifest.seed))
        return DiskRegister(folder, state, options, files, hashing, report)
    except OSError as error:
        raise StorageFull(folder, error) from error


def _trusted(folder: Path, committed: Committed) -> Manifest | None:
    """The manifest, None when there is none. Raises StoreDamaged when it must not be used."""
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
    """Look at everything: when the machine stopped, writes may have been lost in any order."""
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
