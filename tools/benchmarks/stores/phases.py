"""Two phases of a measurement, each in a process of its own."""

import gc
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path

from storage.folder import CHECKPOINT
from storage.options import StoreKind
from tools.benchmarks.accounting import disk_bytes
from tools.benchmarks.processes import Announce
from tools.benchmarks.stores.account import LOOK_EVERY, Account
from tools.benchmarks.stores.entries import START_MS, Wanted, batches
from tools.benchmarks.stores.shard import Shard
from tools.benchmarks.turns import Figures

CANCELLED_AT_ONCE = 1_000
US, MS, MB, KB = 1e6, 1e3, 1e-6, 1e-3


@dataclass(frozen=True, slots=True)
class Order:
    """Life of one shard. Every second record is cancelled, up to `cancelled` records. The life ends
    when `drained` records have ended."""

    store: StoreKind
    folder: Path
    wanted: Wanted
    step_ms: int
    drained: int
    cancelled: int

    def shard(self, next_offset: int) -> Shard:
        return Shard(self.store, self.folder, next_offset, has_ids=self.cancelled > 0)


def fill(announce: Announce, order: Order) -> Figures:
    """Put all entries, with maintenance after each batch as in the pipeline. Then cancel and
    stop cleanly."""
    gc.disable()  # as in the worker's loop
    with Account() as append:
        shard = order.shard(0)
        empty_bytes = disk_bytes(order.folder)
        for batch in append.uncounted(batches(order.wanted)):
            append.steady(partial(shard.put, batch))
            append.steady(shard.maintain)
    with Account() as cancel:
        _cancel(shard, order.cancelled, cancel)
    with Account() as stop:
        _, flush_s = stop.once(shard.flush)
        shard.close()
    records = order.wanted.records
    found = {
        "append_cpu_us": (append.cpu_s + stop.cpu_s) / records * US,
        "append_loop_us": (append.loop_s + stop.loop_s) / records * US,
        "append_longest_ms": append.longest_s * MS,
        "append_memory_mb": append.peak_bytes * MB,
        "flush_ms": flush_s * MS,
        "append_written_bytes": append.written_bytes + cancel.written_bytes + stop.written_bytes,
        "disk_bytes": (disk_bytes(order.folder) - empty_bytes) / records,
        "checkpoint_kb": _checkpoint_bytes(order.folder) * KB,
    }
    if order.cancelled:
        found["cancel_cpu_us"] = cancel.cpu_s / order.cancelled * US
    return found


def drain(announce: Announce, order: Order) -> Figures:
    """Open the store again and let its records fall due, step by step."""
    gc.disable()
    with Account() as memory:
        with Account() as opening:
            shard, open_s = opening.once(partial(order.shard, _next_offset(order)))
            _, count_s = opening.once(shard.store.pending_by_target)
        with Account() as due, closing(shard):
            ended = _let_pass(shard, order, due, memory)
    return {
        "open_ms": open_s * MS,
        "open_cpu_ms": opening.cpu_s * MS,
        "count_ms": count_s * MS,
        "due_cpu_us": due.cpu_s / ended * US,
        "due_loop_us": due.loop_s / ended * US,
        "due_longest_ms": due.longest_s * MS,
        "due_read_bytes": due.read_bytes / ended,
        "due_written_bytes": opening.written_bytes + due.written_bytes,
        "due_memory_mb": memory.peak_bytes * MB,
    }


def _cancel(shard: Shard, cancelled: int, cancel: Account) -> None:
    for first in range(0, cancelled, CANCELLED_AT_ONCE):
        last = min(first + CANCELLED_AT_ONCE, cancelled)
        cancel.steady(partial(shard.cancel, range(2 * first + 1, 2 * last, 2)))
        cancel.steady(shard.maintain)


def _let_pass(shard: Shard, order: Order, due: Account, memory: Account) -> int:
    ended = taken_back = 0
    steps = count(START_MS + order.step_ms, order.step_ms)
    while ended < order.drained:
        assert shard.store.pending() == order.wanted.records - ended
        now_ms, is_all = next(steps), False
        while not is_all:
            delivered, gone, is_all = due.steady(partial(shard.end_due, now_ms))
            ended, taken_back = ended + delivered + gone, taken_back + gone
        due.steady(shard.maintain)
        if now_ms // order.step_ms % LOOK_EVERY == 0:
            memory.look()
    if ended == order.wanted.records:
        assert (shard.store.pending(), taken_back) == (0, order.cancelled)
    return ended


def _next_offset(order: Order) -> int:
    return order.wanted.records + order.cancelled


def _checkpoint_bytes(folder: Path) -> int:
    path = folder / CHECKPOINT
    return path.stat().st_size if path.exists() else 0
