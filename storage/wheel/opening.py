"""Opening a shard's folder at the broker's truth."""

import json
from dataclasses import dataclass
from pathlib import Path

from storage.errors import StorageFull, StoreDamaged, StoreMismatch
from storage.options import Options
from storage.shard.checkpoint import Checkpoint, boot_id, read_checkpoint
from storage.shard.files import Files
from storage.shard.folder import FolderLock
from storage.shard.ledger import Ledger
from storage.wheel.consistency_check import Examination
from storage.wheel.log.body_files import BodyFiles
from storage.wheel.log.timer_log import TimerLog
from storage.wheel.repair import attach_log, cut_log, mend_wheel
from storage.wheel.timer_wheel import TimerWheel, map_wheel
from storage.wheel.wheel_files import BODIES, CHECKPOINT, DAMAGED, LOG, WHEEL, ShardFiles
from storage.wheel.wheel_store import OpenReport, WheelStore


@dataclass(frozen=True, slots=True)
class Committed:
    """What the broker's committed offset says of the partition (DESIGN 5): the watermark and
    cursor, the floor, and the next offset to ingest."""

    watermark_ms: int
    cursor: int
    floor: int
    next_offset: int


def open_store(
    folder: Path,
    committed: Committed,
    options: Options | None = None,
    *,
    rebuild: bool = False,
    files: Files | None = None,
) -> WheelStore:
    """Open or make the store in `folder`; its `report` says how it was found.

    The caller then reads [store.covered, committed.next_offset) from the broker again and puts
    what has not ended. A damaged folder, or one ahead of the broker, is put aside and an empty
    store given instead; so is one made with other options when `rebuild` is set.
    Raises StoreLocked, StoreMismatch, StorageFull."""
    options, files = options or Options(), files or Files()
    lock = FolderLock(folder)
    try:
        return _open(lock, committed, options, rebuild, files)
    except OSError as error:
        lock.release()
        raise StorageFull(folder, error) from error
    except BaseException:
        lock.release()
        raise


def _open(
    lock: FolderLock,
    committed: Committed,
    options: Options,
    rebuild: bool,
    files: Files,
) -> WheelStore:
    folder = lock.folder
    try:
        checkpoint = _trusted(folder, committed)
        if checkpoint is None:
            return _assemble(lock, committed, options, files, None, OpenReport("new"))
        _same_options(folder, checkpoint, options)
        report = OpenReport("reopened")
        return _assemble(lock, committed, options, files, checkpoint, report)
    except StoreMismatch as mismatch:
        if not rebuild:
            raise
        reason = str(mismatch)
    except (StoreDamaged, KeyError, TypeError, json.JSONDecodeError) as damage:
        reason = str(damage)
    report = OpenReport("put aside", reason, lock.put_aside(files))
    return _assemble(lock, committed, options, files, None, report)


def _trusted(folder: Path, committed: Committed) -> Checkpoint | None:
    """The checkpoint, None when there is none. Raises StoreDamaged when it must not be used."""
    if (folder / DAMAGED).exists():
        raise StoreDamaged((folder / DAMAGED).read_text(errors="replace"))
    try:
        checkpoint = read_checkpoint(folder / CHECKPOINT)
    except FileNotFoundError:
        return None
    refuse_ahead(folder, checkpoint, committed)
    return checkpoint


def refuse_ahead(folder: Path, checkpoint: Checkpoint, committed: Committed) -> None:
    """Raise StoreDamaged when the folder knows more than the broker has committed."""
    if checkpoint.covered > committed.next_offset:
        raise StoreDamaged(
            f"{folder} covers offsets up to {checkpoint.covered}, but the broker's committed "
            f"offset is {committed.next_offset}: it was reset"
        )
    if (checkpoint.watermark_ms, checkpoint.cursor) > (committed.watermark_ms, committed.cursor):
        raise StoreDamaged(
            f"{folder} stands at watermark {checkpoint.watermark_ms}/{checkpoint.cursor}, beyond "
            f"the broker's {committed.watermark_ms}/{committed.cursor}"
        )


def _same_options(folder: Path, checkpoint: Checkpoint, options: Options) -> None:
    for name, asked in options.bound().items():
        found = checkpoint.options[name]
        if found != asked:
            raise StoreMismatch(folder, name, found, asked)


def _assemble(
    lock: FolderLock,
    committed: Committed,
    options: Options,
    files: Files,
    checkpoint: Checkpoint | None,
    report: OpenReport,
) -> WheelStore:
    folder = lock.folder
    for name in (LOG, BODIES):
        (folder / name).mkdir(exist_ok=True)
    if checkpoint is None:
        (folder / WHEEL).unlink(missing_ok=True)
        passed = committed.watermark_ms // options.precision_ms
        checkpoint = Checkpoint(options.bound(), closed=passed, boot_id=boot_id())
    _check_wheel_size(folder, options, checkpoint)
    wheel = map_wheel(folder / WHEEL, options.slots, files)
    log = TimerLog(folder / LOG, options.segment_bytes, files)
    try:
        attach_log(log, checkpoint)
        mend_wheel(wheel, log, checkpoint)
        if checkpoint.boot_id != boot_id() or not checkpoint.boot_id:
            _survived_restart(folder, wheel, log, checkpoint)
        cut_log(log)
        shard = ShardFiles(folder, options, files, wheel, log, checkpoint)
        return WheelStore(shard, _ledger(checkpoint, committed), report, lock.release)
    except BaseException:
        log.close()
        raise


def _check_wheel_size(folder: Path, options: Options, checkpoint: Checkpoint) -> None:
    path = folder / WHEEL
    size_bytes = path.stat().st_size if path.exists() else 0
    if checkpoint.log_end and size_bytes != options.slots * 32:
        raise StoreDamaged(f"{path} has {size_bytes} bytes instead of {options.slots * 32}")


def _survived_restart(
    folder: Path, wheel: TimerWheel, log: TimerLog, checkpoint: Checkpoint
) -> None:
    """Look at everything: when the machine stopped, writes may have been lost in any order."""
    findings = Examination(wheel, log, checkpoint, BodyFiles(folder / BODIES, Files())).findings()
    if findings:
        raise StoreDamaged(f"after a restart of the machine: {findings[0]}")


def _ledger(checkpoint: Checkpoint, committed: Committed) -> Ledger:
    covered = min(committed.next_offset, max(checkpoint.covered, committed.floor))
    return Ledger(
        watermark_ms=committed.watermark_ms,
        cursor=committed.cursor,
        counted=(checkpoint.watermark_ms, checkpoint.cursor),
        floor=committed.floor,
        covered=covered,
        next_offset=covered,
        counts=checkpoint.counts,
    )
