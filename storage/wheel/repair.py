"""Bringing wheel and log to the checkpoint: what it confirmed is finished, the rest is cut.

A run that is not whole below the log's end is damage; beyond it nothing is read, but cut, whatever
a crash or a power cut has left there (storage/FORMAT.md#order-of-writing)."""

import numpy as np

from storage.errors import StoreDamaged
from storage.shard.checkpoint import Checkpoint
from storage.store import Column
from storage.wheel.log.many_runs import positions_between, slots_at, whole_headers_at
from storage.wheel.log.records import Rows
from storage.wheel.log.timer_log import TimerLog
from storage.wheel.timer_wheel import TimerWheel, checks


def mend_wheel(
    wheel: TimerWheel, log: TimerLog, checkpoint: Checkpoint, *, has_all_runs: bool = False
) -> None:
    """Open the log's segments; empty the closed chains, and point at the newest runs, unless the
    wheel is known to have them all.

    Raises StoreDamaged when slots and log then disagree, or where a run does not pass its CRC."""
    log.end = checkpoint.log_end
    for number in sorted(checkpoint.live):
        log.attach(number)
    wheel.clear_before(checkpoint.closed)
    redo_from = log.end if has_all_runs else checkpoint.redo_from
    for positions in positions_between(log, redo_from, log.end):
        headers = whole_headers_at(log, positions)
        _store_again(wheel, slots_at(log, positions), positions, headers)
    _check_slots(wheel, log, checkpoint)


def cut_log(log: TimerLog) -> None:
    """Remove what a crash left beyond the end of the log, and segments nobody needs."""
    for path in log.folder.glob("*.log"):
        if not path.stem.isdigit() or int(path.stem) not in log.segments:
            path.unlink()
    log.cut(log.end)


def _store_again(wheel: TimerWheel, slots: Column, positions: Column, headers: Rows) -> None:
    """Point at these runs, of which a later one of the same place counts: numpy stores in order."""
    columns = [headers["time"], positions, headers["chain"].astype(np.int64)]
    wheel.store(slots % wheel.slots, np.column_stack(columns))


def _check_slots(wheel: TimerWheel, log: TimerLog, checkpoint: Checkpoint) -> None:
    """Only once what a kill may have torn has been stored again."""
    used = wheel.used()
    cells = wheel.cells.take(used)
    broken = used[checks(cells) != cells["check"]]
    if broken.size:
        raise StoreDamaged(f"wheel slot {broken[0]} and {broken.size - 1} others fail their check")
    held, live = int(cells["count"].sum(dtype=np.int64)), sum(checkpoint.live.values())
    if held != live:
        raise StoreDamaged(f"the wheel counts {held} records, the checkpoint {live}")
    if wheel.sum_of_checks() != checkpoint.checks:
        raise StoreDamaged("slots of the wheel differ from what the checkpoint says")
    beyond = (cells["last"] >= log.end) | (cells["last"] < 0)
    beyond &= cells["count"] > 0
    if beyond.any():
        raise StoreDamaged(f"{int(beyond.sum())} wheel slots point outside the log")
