"""Writes what is settled and merges what is written, in steps short enough to be done between
two transactions."""

from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import TypeAlias

from storage.ids.compaction_policy import is_mostly_useless, runs_to_merge
from storage.ids.links import Links
from storage.ids.lsm_state import Holdings
from storage.ids.memtable import Table
from storage.ids.options import IdOptions
from storage.ids.runs.idents import Hashing
from storage.ids.runs.layout import Contents
from storage.ids.runs.manifest import MANIFEST, Manifest
from storage.ids.runs.merge import Ended, Merge
from storage.ids.runs.run import Run
from storage.shard.checkpoint import boot_id
from storage.shard.files import Files

Steps: TypeAlias = Generator[None, None, None]
Confirm: TypeAlias = Callable[[list[Run]], None]


class Upkeep:
    """At most one table is written and one merge done at a time, a step of each in turn.

    The order of writing: 1. a run, whole; 2. the manifest: from here on it counts; 3. the runs
    whose place it takes are removed. A crash in between leaves files that opening removes."""

    def __init__(
        self, folder: Path, held: Holdings, options: IdOptions, files: Files, hashing: Hashing
    ) -> None:
        self._folder = folder
        self._held = held
        self._options = options
        self._files = files
        self._hashing = hashing
        self._next_number = 1 + max((run.facts.number for run in held.runs), default=-1)
        self._writing: Steps | None = None
        self._merging: Steps | None = None
        self._is_tidy = False
        self._judged_floor = 0

    def step(self) -> bool:
        """Do one step of writing and one of merging; True when more waits."""
        self._begin_writing(at_once=False)
        self._step_writing()
        if self._held.floor - self._judged_floor >= self._options.replayed_offsets:
            self._is_tidy = False
        if self._merging is None and not self._is_tidy:
            self._begin_merging()
        steps, self._merging = self._merging, None
        self._merging = _stepped(steps)
        return self._writing is not None or self._merging is not None or not self._is_tidy

    def write_all(self) -> None:
        """Write every table that is settled, and cover what can be; merges wait."""
        self._finish_writing()
        for _ in self._held.tables:
            self._begin_writing(at_once=True)
            self._finish_writing()
        if self._held.coverable > self._held.covered:
            self._replace_manifest(self._held.runs, self._held.written_links)

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
        held = self._held
        if self._writing is not None:
            return
        if held.frozen is None and (at_once or self._is_full() or self._is_behind()):
            self._close_recent()
        frozen = held.frozen
        has_room = at_once or len(held.runs) < self._options.most_runs
        if frozen is not None and frozen.last < held.settled and has_room:
            self._writing = self._write_table(frozen)

    def _close_recent(self) -> None:
        """Freeze the table now if it is settled, else before the next offset's changes."""
        held, recent = self._held, self._held.recent
        is_unsettled = recent.first < 0 or recent.first >= held.settled
        if is_unsettled and held.coverable - held.covered >= self._options.replayed_offsets:
            self._replace_manifest(held.runs, held.written_links)
        if recent.first >= 0 and recent.last < held.settled:
            held.freeze()
        else:
            held.is_closing = self._is_full() or not is_unsettled

    def _is_full(self) -> bool:
        recent, options = self._held.recent, self._options
        is_heavy = recent.ident_bytes >= options.table_bytes
        return is_heavy or len(recent) >= options.table_entries

    def _is_behind(self) -> bool:
        """Whether a restart would have too much to read again."""
        return self._held.settled - self._held.covered >= self._options.replayed_offsets

    def _write_table(self, table: Table) -> Steps:
        held = self._held
        made: list[Contents] = []
        yield from table.contents(self._hashing, self._options.write_entries, made)
        yield

        def confirm(fresh: list[Run]) -> None:
            links = Links([*held.written_links.pairs(), *table.links])
            self._replace_manifest([*held.runs, *fresh], links, written=table)

        yield from self._make_run(made, held.runs, confirm)
        yield from table.dismantle(self._options.write_entries)

    def _begin_merging(self) -> None:
        """Choose runs to merge; tidy when there are none."""
        held = self._held
        self._judged_floor = held.floor
        sizes = [run.size for run in held.runs]
        useless = [run.useless_rows(held.floor, held.ended) for run in held.runs]
        count = runs_to_merge(sizes, self._options.merged_runs, self._options.most_runs)
        if is_mostly_useless(useless, sizes, self._options.table_entries):
            count = len(sizes)
        if count:
            older = len(sizes) - count
            self._merging = self._merge_runs(held.runs[:older], held.runs[older:])
        else:
            self._is_tidy = True

    def _merge_runs(self, older: list[Run], replaced: list[Run]) -> Steps:
        for run in replaced:
            for _ in run.check():
                yield

        def confirm(fresh: list[Run]) -> None:
            newer = self._held.runs[len(older) + len(replaced) :]
            self._replace_manifest([*older, *fresh, *newer], self._held.written_links)

        yield from self._make_run([run.contents for run in replaced], older, confirm)
        for run in replaced:
            yield
            self._files.remove(run.path)

    def _make_run(self, sources: list[Contents], older: Sequence[Run], confirm: Confirm) -> Steps:
        """Write a run and have it confirmed. When that fails, it is as if nothing was written."""
        merge = Merge(sources, list(older), self._ended, self._options.merge_entries)
        number, self._next_number = self._next_number, self._next_number + 1
        try:
            yield from merge.steps(self._folder, number, self._files)
            confirm([] if merge.facts is None else [Run(self._folder, merge.facts)])
        except Exception:
            merge.undo()
            raise
        finally:
            merge.close()

    def _ended(self) -> Ended:
        return Ended(self._held.floor, self._held.ended)

    def _replace_manifest(
        self, runs: list[Run], links: Links, *, written: Table | None = None
    ) -> None:
        """Let these runs and links count; `written` is then in them, and forgotten."""
        held = self._held
        covered = held.coverable_without(written)
        manifest = Manifest(
            covered=covered,
            watermark_ms=held.ended[0],
            cursor=held.ended[1],
            links=links.pairs(),
            runs=[run.facts for run in runs],
            boot_id=boot_id(),
        )
        self._files.replace(self._folder / MANIFEST, manifest.to_bytes())
        held.covered = covered
        held.runs, held.written_links = runs, links
        if written is not None:
            held.frozen = None
        held.attach_buried()
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
