"""Opening a folder's wheel: at its checkpoint, mended, and looked through where need be."""

from pathlib import Path

from storage.errors import StoreDamaged
from storage.shard.checkpoint import CHECKPOINT, Checkpoint, boot_id, read_checkpoint
from storage.shard.files import Files
from storage.shard.opening import OpenedTier, Opening
from storage.wheel.inspection.consistency_check import ConsistencyCheck
from storage.wheel.log.body_files import BodyFiles
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
        tier = WheelTier(files, ledger)
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
        is_same_boot = found.boot_id == boot_id() != ""
        has_all = is_same_boot and has_all_runs(folder, found.log_end)
        mend_wheel(wheel, log, found, has_all_runs=has_all)
        if not is_same_boot:
            _survived_restart(folder, wheel, log, found)
    cut_log(log)
    return wheel


def _check_wheel_size(path: Path, wanted_bytes: int, checkpoint: Checkpoint) -> None:
    size_bytes = path.stat().st_size if path.exists() else 0
    if checkpoint.log_end and size_bytes != wanted_bytes:
        raise StoreDamaged(f"{path} has {size_bytes} bytes instead of {wanted_bytes}")


def _survived_restart(
    folder: Path, wheel: TimerWheel, log: TimerLog, checkpoint: Checkpoint
) -> None:
    """Look at everything: when the machine stopped, writes may have been lost in any order."""
    bodies = BodyFiles(folder / BODIES, Files())
    findings = ConsistencyCheck(wheel, log, checkpoint, bodies).findings()
    if findings:
        raise StoreDamaged(f"after a restart of the machine: {findings[0]}")
