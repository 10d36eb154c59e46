"""Opening a folder's wheel: at its checkpoint, and mended."""

from pathlib import Path

from storage.errors import StoreDamaged
from storage.shard.checkpoint import CHECKPOINT, Checkpoint, boot_id, read_checkpoint
from storage.shard.opening import OpenedTier, Opening
from storage.wheel.log.timer_log import TimerLog
from storage.wheel.repair import cut_log, mend_wheel
from storage.wheel.timer_wheel import SLOT, TimerWheel, map_wheel
from storage.wheel.wheel_files import BODIES, LOG, WheelFiles, has_all_runs
from storage.wheel.wheel_tier import WheelTier


def open_wheel(opening: Opening) -> OpenedTier:
    """Open or make wheel, log and bodies; the wheel's file has the name of the kind.

    Raises StoreDamaged, StoreMismatch, OSError."""
    folder, options = opening.folder, opening.options
    try:
        found = read_checkpoint(folder / CHECKPOINT)
    except FileNotFoundError:
        found = None
        if (folder / opening.kind).is_dir():
            raise StoreDamaged(f"{folder} was made by an earlier version") from None
        (folder / opening.kind).unlink(missing_ok=True)
    passed = opening.committed.watermark_ms // options.precision_ms
    checkpoint = found or Checkpoint(options.bound(), closed=passed, boot_id=boot_id())
    ledger = opening.ledger(checkpoint, options.bound())
    log = TimerLog(folder / LOG, options.segment_bytes, options.precision_ms, opening.files)
    try:
        numbers = ledger.counts.targets.numbers
        wheel = _opened_wheel(opening, log, found)
        files = WheelFiles(folder, options, opening.files, wheel, log, checkpoint, numbers)
        is_of_another_boot = found is not None and not _is_of_this_boot(found)
        tier = WheelTier(files, ledger, is_of_another_boot=is_of_another_boot)
    except BaseException:
        log.close()
        raise
    return OpenedTier(tier, ledger, options, is_new=found is None)


def _opened_wheel(opening: Opening, log: TimerLog, found: Checkpoint | None) -> TimerWheel:
    """The wheel at the checkpoint that was found, the log cut there. A new one is empty: looking
    would bring all of its file into memory."""
    folder, options = opening.folder, opening.options
    for name in (LOG, BODIES):
        (folder / name).mkdir(exist_ok=True)
    path = folder / opening.kind
    if found is not None:
        _check_wheel_size(path, options.slots * SLOT.itemsize, found)
    wheel = map_wheel(path, options.slots, opening.files)
    if found is not None:
        has_all = _is_of_this_boot(found) and has_all_runs(folder, found.log_end)
        mend_wheel(wheel, log, found, has_all_runs=has_all)
    cut_log(log)
    return wheel


def _check_wheel_size(path: Path, wanted_bytes: int, checkpoint: Checkpoint) -> None:
    size_bytes = path.stat().st_size if path.exists() else 0
    if checkpoint.log_end and size_bytes != wanted_bytes:
        raise StoreDamaged(f"{path} has {size_bytes} bytes instead of {wanted_bytes}")


def _is_of_this_boot(checkpoint: Checkpoint) -> bool:
    """Else writes may have been lost as the machine stopped, in any order."""
    return checkpoint.boot_id == boot_id() != ""
