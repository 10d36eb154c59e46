"""One round of writing, in steps small enough to fall between two transactions."""

from collections.abc import Iterator

import numpy as np

from storage.shard.arrivals import Arrivals
from storage.shard.checkpoint import Checkpoint, boot_id
from storage.shard.ledger import Ledger
from storage.wheel.chain_writer import Staging
from storage.wheel.compaction import Settling, close_slots, copy_sparse
from storage.wheel.log.records import Column
from storage.wheel.slot_loader import NOWHERE, SlotOpener
from storage.wheel.wheel_files import CHECKPOINT, ShardFiles

SLICE_ENTRIES = 2048
APPLY_SLOTS = 8192
SORTED_PER_WRITTEN = 16
"""How many dues are sorted in the time one entry is written."""


class Flush:
    """The steps, in order:

    1. close the chains of passed slots and copy one sparse segment forward,
    2. write the frozen table: bodies, then runs,
    3. replace the checkpoint: from here on all of it counts,
    4. point the wheel at the new chains,
    5. serve the frozen table's entries from disk, delete files nobody needs.

    A crash before 3 leaves log bytes that the checkpoint does not know: they are cut. A crash
    after it is mended by reading the runs from `redo_from` on (DESIGN 7 has the wheel written
    before the checkpoint; this order needs no undoing)."""

    def __init__(
        self,
        shard: ShardFiles,
        ledger: Ledger,
        opener: SlotOpener,
        frozen: Arrivals | None,
        settling: Settling,
        in_memory: Arrivals,
    ) -> None:
        self.frozen = frozen
        self.staging = Staging(shard.wheel, shard.log, shard.options.precision_ms)
        self._shard = shard
        self._ledger = ledger
        self._opener = opener
        self._settling = settling
        self._in_memory = in_memory
        self._fresh: list[tuple[Column, Column]] = []

    def steps(self) -> Iterator[int]:
        """Do it; yields about how many entries each step was worth."""
        closed = self._ledger.watermark_ms // self._shard.options.precision_ms
        yield from close_slots(self._shard, self.staging, closed - 1, self._settling)
        yield from copy_sparse(self._shard, self.staging, self._opener)
        if self.frozen is not None:
            yield from self._write(self.frozen)
        self._confirm(closed)
        yield SLICE_ENTRIES
        yield from self._apply()
        self._finish()

    def undo(self) -> None:
        """Give up before the checkpoint: as if nothing had been written."""
        self._opener.memory_from = NOWHERE
        self._shard.bodies.rewind()
        self._shard.log.cut(self._shard.checkpoint.log_end)

    def _write(self, frozen: Arrivals) -> Iterator[int]:
        self._opener.memory_from = self._shard.log.end
        columns = yield from frozen.to_columns(SLICE_ENTRIES)
        order = np.lexsort((columns.offsets, columns.dues_ms))
        yield order.size // SORTED_PER_WRITTEN
        options = self._shard.options
        mean_bytes = max(1, sum(map(len, columns.bodies)) // max(1, order.size))
        size = max(1, min(SLICE_ENTRIES, options.run_records, options.slice_bytes // mean_bytes))
        for start in range(0, order.size, size):
            part = columns.taken(order[start : start + size])
            rows = self._shard.rows_for(part, self._ledger.watermark_ms)
            self._fresh.append(self.staging.write(rows))
            yield rows.size

    def _confirm(self, closed: int) -> None:
        shard, ledger = self._shard, self._ledger
        counts = ledger.counts.copy()
        self._settling.apply(shard, counts)
        settled = counts.copy()
        if self.frozen is not None:
            counts.merge(self.frozen.counts)
        first = self._in_memory.first_offset
        covered = ledger.next_offset if first is None else min(ledger.next_offset, first)
        live = dict(shard.checkpoint.live)
        for number, change in self.staging.live.items():
            live[number] = live.get(number, 0) + change
        checkpoint = Checkpoint(
            options=shard.options.bound(),
            covered=max(ledger.covered, covered),
            watermark_ms=ledger.watermark_ms,
            cursor=ledger.cursor,
            closed=closed,
            log_end=shard.log.end,
            redo_from=shard.checkpoint.log_end,
            live={number: records for number, records in live.items() if records},
            names=shard.names.used(counts.targets),
            next_name=shard.names.next_number,
            boot_id=boot_id(),
            counts=counts,
        )
        shard.files.replace(shard.folder / CHECKPOINT, checkpoint.to_bytes())
        shard.checkpoint = checkpoint
        shard.names.keep(checkpoint.names)
        shard.bodies.keep()
        ledger.counts = settled
        ledger.covered = checkpoint.covered

    def _apply(self) -> Iterator[int]:
        for places, heads in self.staging.changes(APPLY_SLOTS):
            self._shard.wheel.store(places, heads)
            yield places.size

    def _finish(self) -> None:
        shard = self._shard
        self._opener.finish()
        self._opener.memory_from = NOWHERE
        if self.frozen is not None:
            self._ledger.counts.merge(self.frozen.counts)
        if self._fresh:
            slots, positions = map(np.concatenate, zip(*self._fresh, strict=True))
            self._opener.add_flushed(slots, positions)
        shard.bodies.drop_before(shard.checkpoint.watermark_ms)
        kept = shard.checkpoint.live.keys() | {shard.log.number(shard.log.end)}
        for number in [number for number in shard.log.segments if number not in kept]:
            shard.log.drop(number)
