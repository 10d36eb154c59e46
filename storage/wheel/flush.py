"""One round of writing, in steps small enough to fall between two transactions."""

from collections.abc import Callable, Iterator
from contextlib import suppress

import numpy as np

from storage.errors import StoreDamaged
from storage.shard.checkpoint import CHECKPOINT, Checkpoint
from storage.shard.ledger import Ledger
from storage.shard.memory.memtable import Memtable
from storage.store import Column
from storage.wheel.compaction import EndedElsewhere, close_slots, copy_sparse
from storage.wheel.slot_loader import NOWHERE, SlotLoader
from storage.wheel.wheel_files import WheelFiles

SLICE_ENTRIES = 2048
APPLY_SLOTS = 8192
SORTED_PER_WRITTEN = 16
"""How many dues are joined, or sorted, in the time one entry is written."""


class Flush:
    """The steps, in order:

    1. close the chains of passed slots and copy one sparse segment forward,
    2. write the memtable: bodies, then runs; sum up what the wheel will be,
    3. replace the checkpoint: from here on all of it counts,
    4. point the wheel at the new chains,
    5. serve the memtable's entries from disk, delete files nobody needs, note that 4 is done.

    A crash before 3 leaves log bytes that the checkpoint does not know: they are cut. A crash
    after it is mended by reading the runs from `redo_from` on (storage/FORMAT.md, "Order of
    writing")."""

    def __init__(
        self,
        files: WheelFiles,
        ledger: Ledger,
        loader: SlotLoader,
        memtable: Memtable | None,
        elsewhere: EndedElsewhere,
        coverable: Callable[[], int],
    ) -> None:
        self._files = files
        self._ledger = ledger
        self._loader = loader
        self._memtable = memtable
        self._elsewhere = elsewhere
        self._coverable = coverable
        self._chains = files.chain_writer()
        self._fresh: list[tuple[Column, Column]] = []
        self._checks = files.checkpoint.checks

    def steps(self) -> Iterator[int]:
        """Do it; yields about how many entries each step was worth."""
        closed = self._ledger.watermark_ms // self._files.options.precision_ms
        try:
            yield from self._write(closed)
            self._replace_checkpoint(closed)
        except OSError:
            self._undo()
            raise
        yield SLICE_ENTRIES
        try:
            yield from self._point_at_new_chains()
            self._finish()
        except OSError as error:
            raise StoreDamaged(f"after its checkpoint, {self._files.folder}: {error}") from error

    def _write(self, closed: int) -> Iterator[int]:
        yield from close_slots(self._files, self._chains, closed - 1, self._elsewhere)
        yield from copy_sparse(self._files, self._chains, self._loader)
        if self._memtable is not None:
            yield from self._write_memtable(self._memtable)
        for places, heads in self._chains.changes(APPLY_SLOTS):
            self._checks += self._files.wheel.change_of_sum(places, heads)
            yield places.size // SORTED_PER_WRITTEN

    def _write_memtable(self, memtable: Memtable) -> Iterator[int]:
        self._loader.memory_from = self._files.log.end
        columns = yield from memtable.to_columns(SLICE_ENTRIES)
        yield len(columns) // SORTED_PER_WRITTEN
        order = np.lexsort((columns.offsets, columns.dues_ms))
        yield order.size // SORTED_PER_WRITTEN
        options = self._files.options
        mean_bytes = max(1, sum(map(len, columns.bodies)) // max(1, order.size))
        size = max(1, min(SLICE_ENTRIES, options.run_records, options.slice_bytes // mean_bytes))
        for start in range(0, order.size, size):
            part = columns.taken(order[start : start + size])
            rows = self._files.rows_for(part, self._ledger.watermark_ms)
            self._fresh.append(self._chains.write(rows))
            yield max(rows.size, SLICE_ENTRIES * rows.size * mean_bytes // options.slice_bytes)

    def _undo(self) -> None:
        """Give up before the checkpoint: as if nothing had been written.

        What fails of it does no harm: the log cuts itself again before it is written to."""
        self._loader.memory_from = NOWHERE
        with suppress(OSError):
            self._files.log.cut(self._files.checkpoint.log_end)
        self._files.bodies.rewind()

    def _replace_checkpoint(self, closed: int) -> None:
        files, ledger = self._files, self._ledger
        counts = ledger.counts.copy()
        self._elsewhere.count_out(files, counts)
        without_memtable = counts.copy()
        if self._memtable is not None:
            counts.merge(self._memtable.counts)
        live = dict(files.checkpoint.live)
        for number, change in self._chains.live.items():
            live[number] = live.get(number, 0) + change
        checkpoint = Checkpoint(
            options=files.options.bound(),
            covered=self._coverable(),
            watermark_ms=ledger.watermark_ms,
            cursor=ledger.cursor,
            closed=closed,
            log_end=files.log.end,
            redo_from=files.checkpoint.log_end,
            live={number: records for number, records in live.items() if records},
            checks=self._checks,
            boot_id=files.boot_id,
            counts=counts,
        )
        files.files.replace(files.folder / CHECKPOINT, checkpoint.to_bytes())
        files.checkpoint = checkpoint
        files.bodies.confirm()
        ledger.counts = without_memtable
        ledger.covered = checkpoint.covered

    def _point_at_new_chains(self) -> Iterator[int]:
        for places, heads in self._chains.changes(APPLY_SLOTS):
            self._files.wheel.store(places, heads)
            yield places.size

    def _finish(self) -> None:
        files = self._files
        self._loader.finish()
        self._loader.memory_from = NOWHERE
        if self._memtable is not None:
            self._ledger.counts.merge(self._memtable.counts)
        nothing = np.zeros(0, np.int64)
        fresh = [*self._fresh, (nothing, nothing)]
        self._loader.add_flushed(*map(np.concatenate, zip(*fresh, strict=True)))
        files.bodies.drop_before(files.checkpoint.watermark_ms)
        kept = files.checkpoint.live.keys() | {files.log.number(files.log.end)}
        for number in [number for number in files.log.segments if number not in kept]:
            files.log.drop(number)
        files.note_stored()
