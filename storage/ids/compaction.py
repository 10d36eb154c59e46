"""Compaction of runs, in the background."""

from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import TypeAlias

from storage.folder import Files, boot_id
from storage.ids.layout import MANIFEST, Hashing, Manifest, RunContents, RunSummary
from storage.ids.memtable import IdMemtable, Links, Tombstones
from storage.ids.runs import Ended, Merge, Run
from storage.options import IdOptions
from storage.register import Key
from storage.store import Committed

# Where the changes of a register are: in which memtable or run.


class LsmState:
    """Each change is in `active` (memory, filling), in `immutable` (memory, waiting until all of it
    is settled, then being written), or in `runs` and `written_links`, which the manifest names.

    settled: no change below it is still to come, and it is committed. covered: what the manifest
    says. floor: the highest committed one, so far as it was told. is_closing: `active` is to be
    closed before it takes the changes of another offset. is_flush_requested: `active` is to be
    closed though it is not full."""

    def __init__(
        self, manifest: Manifest, runs: Sequence[Run], committed: Committed, most_names: int
    ) -> None:
        self.seed = manifest.seed
        self.runs = list(runs)
        self.active = IdMemtable()
        self.immutable: IdMemtable | None = None
        self.is_closing = self.is_flush_requested = False
        self.covered = self.settled = manifest.covered
        self.floor = 0
        self.ended: Key = (committed.watermark_ms, committed.cursor)
        self.written_links = Links(manifest.links)
        self.links = Links(manifest.links)
        self.tombstones = Tombstones(self.ended, most_names)
        self.attach_tombstones()
        self.tombstones.count()

    @property
    def memtables(self) -> list[IdMemtable]:
        """The memtables, newest first."""
        return [self.active] if self.immutable is None else [self.active, self.immutable]

    @property
    def coverable(self) -> int:
        """What a manifest covers that names the runs and links of now."""
        return self.coverable_without(None)

    def coverable_without(self, written: IdMemtable | None) -> int:
        """The same for one that names a run made of the memtable `written`, too."""
        memtables = [
            memtable
            for memtable in self.memtables
            if memtable is not written and memtable.first >= 0
        ]
        return max(self.covered, min([self.settled, *(memtable.first for memtable in memtables)]))

    def settle(self, settled_offset: int, floor: int) -> None:
        """Raise what is settled and the floor; links of no use any more are forgotten."""
        self.settled = max(self.settled, settled_offset)
        self.floor = max(self.floor, floor)
        self.links.forget(self.floor, self.ended[0])
        self.written_links.forget(self.floor, self.ended[0])

    def close_active(self) -> None:
        """Let later changes go to a new memtable."""
        assert self.immutable is None
        self.immutable, self.active = self.active, IdMemtable()
        self.is_closing = self.is_flush_requested = False
        self.attach_tombstones()

    def attach_tombstones(self) -> None:
        """Tell the tombstones that they are in other memtables or runs now."""
        self.tombstones.attach((memtable.tombstones for memtable in self.memtables), self.runs)


# Which runs to merge.


def runs_to_merge(sizes: Sequence[int], least: int, most: int) -> int:
    """How many of the newest runs, given the sizes of all, oldest first, should become one.

    At least `least`, and as many as possible of which the oldest is no larger than all newer
    ones together: rows that newer ones hide then take no more room than the others. With
    `least` 8, of 30 memtables a row is copied once, of 1,000 four times, and there are 5 or 7 runs.
    `most` runs are too many whatever their sizes. 0: leave them."""
    best, newer = 0, 0
    for count, size in enumerate(reversed(sizes), 1):
        if count >= least and size <= newer:
            best = count
        newer += size
    return least if len(sizes) >= most and not best else best


def is_mostly_useless(useless: Sequence[int], sizes: Sequence[int], least: int) -> bool:
    """Whether so many rows may be forgotten that all runs are worth being copied without them."""
    return sum(useless) > max(least, sum(sizes) // 2)


# Writes memtables as runs and merges runs, in steps that fall between two transactions.

Steps: TypeAlias = Generator[None, None, None]
Confirm: TypeAlias = Callable[[list[Run]], None]


class Compaction:
    """At most one memtable is written and one merge done at a time, a step of each in turn.

    The order of writing: 1. a run, whole; 2. the manifest: from here on it counts; 3. the runs
    whose place it takes are removed. A crash in between leaves files that opening removes."""

    def __init__(
        self, folder: Path, state: LsmState, options: IdOptions, files: Files, hashing: Hashing
    ) -> None:
        self._folder = folder
        self._state = state
        self._options = options
        self._files = files
        self._hashing = hashing
        self._next_number = 1 + max((run.summary.number for run in state.runs), default=-1)
        self._writing: Steps | None = None
        self._merging: Steps | None = None
        self._is_tidy = False
        self._floor_looked_at = 0

    def step(self) -> bool:
        """Do one step of writing and one of merging; True when more waits."""
        self._begin_writing(at_once=False)
        self._step_writing()
        if self._state.floor - self._floor_looked_at >= self._options.replayed_offsets:
            self._is_tidy = False
        if self._merging is None and not self._is_tidy:
            self._begin_merging()
        steps, self._merging = self._merging, None
        self._merging = _stepped(steps)
        return self._writing is not None or self._merging is not None or not self._is_tidy

    def write_all(self) -> None:
        """Write every memtable that is settled, and cover what can be; merges wait."""
        self._finish_writing()
        for _ in self._state.memtables:
            self._begin_writing(at_once=True)
            self._finish_writing()
        if self._state.coverable > self._state.covered:
            self._replace_manifest(self._state.runs, self._state.written_links)

    def close(self) -> None:
        """Give the files back; what is half done stays so, as in a crash."""
        for steps in (self._writing, self._merging):
            if steps is not None:
                steps.close()
        self._writing = self._merging = None

    def _finish_writing(self) -> None:
        while self._writing is not None:
            self._step_writing()

    def _step_writing(self) -> None:
        steps, self._writing = self._writing, None
        self._writing = _stepped(steps)

    def _begin_writing(self, *, at_once: bool) -> None:
        state = self._state
        if self._writing is not None:
            return
        if state.immutable is None and (at_once or self._is_full() or self._is_behind()):
            self._close_active()
        immutable = state.immutable
        has_room = at_once or len(state.runs) < self._options.most_runs
        if immutable is not None and immutable.last < state.settled and has_room:
            self._writing = self._write_memtable(immutable)

    def _close_active(self) -> None:
        """Close the active memtable now if it is settled, else before the next offset's changes."""
        state, active = self._state, self._state.active
        is_unsettled = active.first < 0 or active.first >= state.settled
        if is_unsettled and state.coverable - state.covered >= self._most_behind:
            self._replace_manifest(state.runs, state.written_links)
            state.is_flush_requested = False
        if active.first >= 0 and active.last < state.settled:
            state.close_active()
        else:
            state.is_closing = self._is_full() or not is_unsettled

    def _is_full(self) -> bool:
        active, options = self._state.active, self._options
        is_heavy = active.text_bytes >= options.memtable_bytes
        return is_heavy or len(active) >= options.memtable_entries

    def _is_behind(self) -> bool:
        """Whether a restart would have too much to read again."""
        return self._state.settled - self._state.covered >= self._most_behind

    @property
    def _most_behind(self) -> int:
        return 1 if self._state.is_flush_requested else self._options.replayed_offsets

    def _write_memtable(self, memtable: IdMemtable) -> Steps:
        state = self._state
        made: list[RunContents] = []
        yield from memtable.contents(self._hashing, self._options.write_entries, made)
        yield

        def confirm(fresh: list[Run]) -> None:
            links = Links([*state.written_links.all(), *memtable.links])
            self._replace_manifest([*state.runs, *fresh], links, written=memtable)

        yield from self._make_run(made, state.runs, confirm)
        yield from memtable.free_memory(self._options.write_entries)

    def _begin_merging(self) -> None:
        """Choose runs to merge; tidy when there are none."""
        state = self._state
        self._floor_looked_at = state.floor
        sizes = [run.size for run in state.runs]
        useless = [run.useless_rows(state.floor, state.ended) for run in state.runs]
        count = runs_to_merge(sizes, self._options.merged_runs, self._options.most_runs)
        if is_mostly_useless(useless, sizes, self._options.memtable_entries):
            count = len(sizes)
        if count:
            older = len(sizes) - count
            self._merging = self._merge_runs(state.runs[:older], state.runs[older:])
        else:
            self._is_tidy = True

    def _merge_runs(self, older: list[Run], replaced: list[Run]) -> Steps:
        for run in replaced:
            for _ in run.check():
                yield

        def confirm(fresh: list[Run]) -> None:
            newer = self._state.runs[len(older) + len(replaced) :]
            self._replace_manifest([*older, *fresh, *newer], self._state.written_links)

        yield from self._make_run([run.contents for run in replaced], older, confirm)
        for run in replaced:
            yield
            self._files.remove(run.path)

    def _make_run(
        self, sources: list[RunContents], older: Sequence[Run], confirm: Confirm
    ) -> Steps:
        """Write a run and have it confirmed. When that fails, it is as if nothing was written."""
        merge = Merge(sources, list(older), self._ended, self._options.merge_entries)
        number, self._next_number = self._next_number, self._next_number + 1
        try:
            yield from merge.steps(self._folder, number, self._files)
            confirm([] if merge.summary is None else [self._opened(merge.summary)])
        except Exception:
            merge.undo()
            raise
        finally:
            merge.close()

    def _opened(self, summary: RunSummary) -> Run:
        return Run(self._folder, summary, self._hashing)

    def _ended(self) -> Ended:
        return Ended(self._state.floor, self._state.ended)

    def _replace_manifest(
        self, runs: list[Run], links: Links, *, written: IdMemtable | None = None
    ) -> None:
        """Let these runs and links count; `written` is then in them, and forgotten."""
        state = self._state
        covered = state.coverable_without(written)
        manifest = Manifest(
            seed=state.seed,
            covered=covered,
            watermark_ms=state.ended[0],
            cursor=state.ended[1],
            links=links.all(),
            runs=[run.summary for run in runs],
            boot_id=boot_id(),
        )
        self._files.replace(self._folder / MANIFEST, manifest.to_bytes())
        state.covered = covered
        state.runs, state.written_links = runs, links
        if written is not None:
            state.immutable = None
        state.attach_tombstones()
        self._is_tidy = False


def _stepped(steps: Steps | None) -> Steps | None:
    """Do one step; None when there are no more. What fails is begun anew by the caller."""
    if steps is None:
        return None
    try:
        next(steps)
    except StopIteration:
        return None
    return steps
