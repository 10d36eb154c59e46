"""Giving back log space: chains of passed slots are closed, sparse segments copied forward."""

from collections.abc import Generator, Iterator

from storage.options import RECORD_BYTES
from storage.shard.counts import Counts
from storage.wheel.chain_writer import Staging
from storage.wheel.log.records import Head, Rows, Run, in_order, joined
from storage.wheel.slot_loader import SlotOpener
from storage.wheel.wheel_files import ShardFiles

SPARSE_SHARE = 4
"""A segment is copied forward when less than 1/SPARSE_SHARE of its records are live."""
KEPT_SEGMENTS = 4
JOINED_RECORDS = 32_768
"""A longer chain is copied run by run, so that it need not fit in memory."""


def close_slots(
    shard: ShardFiles, staging: Staging, last: int, settle: "Settling"
) -> Iterator[int]:
    """Close the chains of slot numbers up to `last`: what is due later begins a chain anew.

    Yields the records looked at after each piece of work. Changes nothing but `staging`."""
    for place in shard.wheel.begun_in(shard.checkpoint.closed, last):
        later = yield from _later_runs(shard, staging.head(place), last, settle)
        staging.restart(place)
        yield from _rewrite(staging, later)


def _later_runs(
    shard: ShardFiles, head: Head, last: int, settle: "Settling"
) -> Generator[int, None, list[Rows]]:
    later: list[Rows] = []
    for run in shard.log.chain(head, checked=False):
        if run.slot > last:
            later.append(shard.log.run(run.position).rows)
        else:
            settle.run(shard, run)
        yield run.records
    return later[::-1]


def _rewrite(staging: Staging, runs: list[Rows]) -> Iterator[int]:
    for rows in runs:
        staging.write(rows)
        yield rows.size


class Settling:
    """Records that ended while the store was closed, met when their slots are closed."""

    def __init__(self, before_slot: int, after: tuple[int, int]) -> None:
        self.before_slot = before_slot
        self.after = after
        self._found: list[Rows] = []

    def run(self, shard: ShardFiles, run: Run) -> None:
        """Note what ended in a run of a slot that this process never opened."""
        if run.slot < self.before_slot:
            rows = shard.log.run(run.position).rows[run.upto(*self.after) :]
            if rows.size:
                self._found.append(rows)

    def apply(self, shard: ShardFiles, counts: Counts) -> None:
        """Take what was noted out of `counts`."""
        for rows in self._found:
            shard.count_ended(counts, rows)


def copy_sparse(shard: ShardFiles, staging: Staging, opener: SlotOpener) -> Iterator[int]:
    """Copy the chains that reach into the sparsest segment to the end of the log.

    Chains of slots already begun by `opener` are left alone: they close soon."""
    number = _sparsest(shard, staging)
    if number is None:
        return
    seen: set[int] = set()
    for run in shard.log.scan_segment(number):
        yield 1
        place = run.slot % shard.wheel.slots
        if place in seen:
            continue
        seen.add(place)
        yield from _copy_chain(shard, staging, place, number, opener)


def _copy_chain(
    shard: ShardFiles, staging: Staging, place: int, number: int, opener: SlotOpener
) -> Iterator[int]:
    head = staging.head(place)
    if not head.records or head.time < opener.begun_below:
        return
    runs = list(shard.log.chain(head, checked=False))
    if all(shard.log.number(run.position) != number for run in runs):
        return
    runs = [shard.log.run(run.position) for run in runs]
    staging.restart(place)
    yield head.records
    if head.records > JOINED_RECORDS:
        yield from _rewrite(staging, [run.rows for run in reversed(runs)])
    else:
        yield from _rewrite(staging, _merged(runs[::-1], shard.options.run_records))


def _merged(runs: list[Run], most_records: int) -> list[Rows]:
    """Runs oldest first as fewer, longer ones, each of one slot."""
    merged: list[Rows] = []
    for slot in sorted({run.slot for run in runs}):
        rows = in_order(joined([run.rows for run in runs if run.slot == slot]))
        merged += [rows[at : at + most_records] for at in range(0, rows.size, most_records)]
    return merged


def _sparsest(shard: ShardFiles, staging: Staging) -> int | None:
    live = shard.checkpoint.live
    full = shard.options.segment_bytes // RECORD_BYTES
    current = shard.log.number(shard.log.end)
    old = [number for number in shard.log.segments if number < current - KEPT_SEGMENTS]
    sparse = [
        (live.get(number, 0) + staging.live[number], number)
        for number in old
        if 0 < live.get(number, 0) + staging.live[number] < full // SPARSE_SHARE
    ]
    return min(sparse)[1] if sparse else None
