"""Compaction of the log: chains of passed slots are closed, sparse segments copied forward."""

from collections import Counter
from collections.abc import Generator, Iterator

import numpy as np

from storage.options import RECORD_BYTES
from storage.shard.memory.counts import Counts
from storage.wheel.chain_writer import ChainWriter
from storage.wheel.log.many_runs import positions_between, slots_at
from storage.wheel.log.records import Rows, Run, in_order, joined
from storage.wheel.slot_loader import SlotLoader
from storage.wheel.wheel_files import WheelFiles

SPARSE_SHARE = 4
"""A segment is copied forward when less than 1/SPARSE_SHARE of its records are live."""
KEPT_SEGMENTS = 4
JOINED_RECORDS = 32_768
"""A longer chain is copied run by run, so that it need not fit in memory."""
FOUND_PER_READ = 16
"""So many runs are found in a segment in the time in which one is read."""
COUNTED_ROWS = 8_192
"""So many rows that ended elsewhere are counted at once: about a millisecond, ten where each of
them lies in a run of its own."""


def close_slots(
    files: WheelFiles, chains: ChainWriter, last: int, elsewhere: "EndedElsewhere"
) -> Iterator[int]:
    """Close the chains of slot numbers up to `last`: what is due later begins a chain anew.

    Yields the records looked at after each piece of work. Changes nothing but `chains`."""
    for place in files.wheel.begun_in(files.checkpoint.closed, last):
        dead = Counter[int]()
        later = yield from _later_runs(files, chains, place, last, elsewhere, dead)
        chains.restart(place, dead)
        yield from _rewrite(chains, later)


def _later_runs(
    files: WheelFiles,
    chains: ChainWriter,
    place: int,
    last: int,
    elsewhere: "EndedElsewhere",
    dead: Counter[int],
) -> Generator[int, None, list[Rows]]:
    later: list[Rows] = []
    for run in files.chain(place, chains.head(place), checked=False):
        dead[files.log.number(run.position)] += run.records
        if run.slot > last:
            later.append(files.log.run(run.position).rows)
        else:
            elsewhere.note(files, run)
        yield run.records
    return later[::-1]


def _rewrite(chains: ChainWriter, runs: list[Rows]) -> Iterator[int]:
    for rows in runs:
        chains.write(rows)
        yield rows.size


class EndedElsewhere:
    """Records that ended while the store was closed, met when their slots are closed."""

    def __init__(self, before_slot: int, after: tuple[int, int]) -> None:
        self.before_slot = before_slot
        self.after = after
        self._found: list[Rows] = []
        self._found_rows = 0
        self._ended: Counts | None = None

    def note(self, files: WheelFiles, run: Run) -> None:
        """Note what ended in a run of a slot that this process never loaded."""
        if run.slot < self.before_slot:
            rows = files.log.run(run.position).rows[run.upto(*self.after) :]
            if rows.size:
                self._found.append(rows)
                self._found_rows += rows.size
            if self._found_rows >= COUNTED_ROWS:
                self._count(files)

    def count_out(self, files: WheelFiles, counts: Counts) -> None:
        """Take what was noted out of `counts`."""
        if self._found:
            self._count(files)
        if self._ended is not None:
            counts.take_out(self._ended)

    def _count(self, files: WheelFiles) -> None:
        ended = files.counts_of(joined(self._found))
        if self._ended is None:
            self._ended = ended
        else:
            self._ended.merge(ended)
        self._found, self._found_rows = [], 0


def copy_sparse(files: WheelFiles, chains: ChainWriter, loader: SlotLoader) -> Iterator[int]:
    """Copy the chains that reach into the sparsest segment to the end of the log.

    Chains of slots already begun by `loader` are left alone: they close soon."""
    number = _sparsest(files, chains)
    if number is None:
        return
    start, end = number * files.options.segment_bytes, (number + 1) * files.options.segment_bytes
    seen: set[int] = set()
    for positions in positions_between(files.log, start, min(end, files.log.end)):
        yield positions.size // FOUND_PER_READ
        slots = slots_at(files.log, positions)
        for place in np.unique(slots % files.wheel.slots).tolist():
            if place not in seen:
                seen.add(place)
                yield from _copy_chain(files, chains, place, number, loader)


def _copy_chain(
    files: WheelFiles, chains: ChainWriter, place: int, number: int, loader: SlotLoader
) -> Iterator[int]:
    head = chains.head(place)
    if not head.records or head.time < loader.begun_below:
        return
    positions: list[int] = []
    dead = Counter[int]()
    for run in files.chain(place, head, checked=False):
        positions.append(run.position)
        dead[files.log.number(run.position)] += run.records
        yield 1
    if not dead[number]:
        return
    runs: list[Run] = []
    for position in positions:
        runs.append(files.log.run(position))
        yield runs[-1].records
    chains.restart(place, dead)
    if head.records > JOINED_RECORDS:
        yield from _rewrite(chains, [run.rows for run in reversed(runs)])
    else:
        yield from _rewrite(chains, _merged(runs[::-1], files.options.run_records))


def _merged(runs: list[Run], most_records: int) -> list[Rows]:
    """Runs oldest first as fewer, longer ones, each of one slot."""
    merged: list[Rows] = []
    for slot in sorted({run.slot for run in runs}):
        rows = in_order(joined([run.rows for run in runs if run.slot == slot]))
        merged += [rows[at : at + most_records] for at in range(0, rows.size, most_records)]
    return merged


def _sparsest(files: WheelFiles, chains: ChainWriter) -> int | None:
    live = files.checkpoint.live
    full = files.options.segment_bytes // RECORD_BYTES
    current = files.log.number(files.log.end)
    old = [number for number in files.log.segments if number < current - KEPT_SEGMENTS]
    sparse = [
        (live.get(number, 0) + chains.live[number], number)
        for number in old
        if 0 < live.get(number, 0) + chains.live[number] < full // SPARSE_SHARE
    ]
    return min(sparse)[1] if sparse else None
