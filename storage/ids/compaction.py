"""Writes memtables as runs and merges runs, in steps that fall between two transactions."""

from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import TypeAlias

from storage.ids.compaction_policy import is_mostly_useless, runs_to_merge
from storage.ids.id_memtable import IdMemtable
from storage.ids.links import Links
from storage.ids.lsm_state import LsmState
from storage.ids.options import IdOptions
from storage.ids.runs.idents import Hashing
from storage.ids.runs.layout import RunContents, RunSummary
from storage.ids.runs.manifest import MANIFEST, Manifest
from storage.ids.runs.merge import Ended, Merge
from storage.ids.runs.run import Run
from storage.shard.checkpoint import boot_id
from storage.shard.files import Files

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
