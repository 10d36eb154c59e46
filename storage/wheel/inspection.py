"""A look into a shard's folder from outside, without changing it; the proxy need not run.

On the folder of a running proxy the answers may be of two instants: look again."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from storage.errors import StoreDamaged
from storage.shard.checkpoint import Checkpoint, read_checkpoint
from storage.shard.files import Files
from storage.wheel.consistency_check import Examination
from storage.wheel.log.body_files import BodyFiles
from storage.wheel.log.timer_log import TimerLog
from storage.wheel.repair import attach_log, mend_wheel
from storage.wheel.timer_wheel import copy_wheel
from storage.wheel.wheel_files import BODIES, CHECKPOINT, DAMAGED, LOG, WHEEL

READ_AT_ONCE = 1024


@dataclass(slots=True)
class Verdict:
    """What `verify` saw; all is well when `findings` is empty."""

    folder: Path
    findings: list[str] = field(default_factory=list)
    covered: int = 0
    watermark_ms: int = -1
    cursor: int = -1
    pending: int = 0
    pending_by_target: dict[str, int] = field(default_factory=dict)
    runs: int = 0
    records: int = 0
    segments: int = 0


@dataclass(slots=True)
class _Look:
    checkpoint: Checkpoint
    log: TimerLog
    bodies: BodyFiles
    examination: Examination


def verify(folder: Path) -> Verdict:
    """Check every run, chain, slot, body and count of the folder."""
    verdict = Verdict(folder)
    if (folder / DAMAGED).exists():
        verdict.findings.append((folder / DAMAGED).read_text(errors="replace"))
    try:
        with _looking(folder) as look:
            verdict.findings += look.examination.findings()
            verdict.findings += _bad_bodies(look)
            _describe(verdict, look)
    except FileNotFoundError as missing:
        verdict.findings.append(f"{missing.filename} is missing: nothing was ever checkpointed")
    except StoreDamaged as damage:
        verdict.findings.append(str(damage))
    return verdict


def dump(folder: Path) -> Iterator[dict[str, Any]]:
    """The entries on disk in (due, offset) order: due_ms, offset, target, body (as encoded).

    Raises StoreDamaged, and FileNotFoundError when there is no checkpoint."""
    with _looking(folder) as look:
        look.examination.findings()
        pending = look.examination.pending
        for start in range(0, len(pending), READ_AT_ONCE):
            rows = pending[start : start + READ_AT_ONCE]
            for row, body in zip(rows, look.bodies.read(rows), strict=True):
                yield {
                    "due_ms": int(row["due_ms"]),
                    "offset": int(row["offset"]),
                    "target": look.checkpoint.names.get(int(row["target"])),
                    "body": body,
                }


@contextmanager
def _looking(folder: Path) -> Iterator[_Look]:
    checkpoint = read_checkpoint(folder / CHECKPOINT)
    files = Files()
    log = TimerLog(folder / LOG, checkpoint.options["segment_bytes"], files, writable=False)
    bodies = BodyFiles(folder / BODIES, files)
    try:
        attach_log(log, checkpoint)
        wheel = copy_wheel(folder / WHEEL)
        if wheel.slots != checkpoint.options["slots"]:
            raise StoreDamaged(f"{folder / WHEEL} has {wheel.slots} slots")
        mend_wheel(wheel, log, checkpoint)
        yield _Look(checkpoint, log, bodies, Examination(wheel, log, checkpoint, bodies))
    finally:
        log.close()
        bodies.close()


def _bad_bodies(look: _Look) -> list[str]:
    bad: list[str] = []
    pending = look.examination.pending
    for start in range(0, len(pending), READ_AT_ONCE):
        try:
            look.bodies.read(pending[start : start + READ_AT_ONCE])
        except StoreDamaged as damage:
            if str(damage) not in bad:
                bad.append(str(damage))
    return bad


def _describe(verdict: Verdict, look: _Look) -> None:
    checkpoint = look.checkpoint
    verdict.covered = checkpoint.covered
    verdict.watermark_ms, verdict.cursor = checkpoint.watermark_ms, checkpoint.cursor
    verdict.pending = len(look.examination.pending)
    verdict.pending_by_target = dict(checkpoint.counts.targets)
    verdict.runs, verdict.records = look.examination.runs, look.examination.records
    verdict.segments = len(look.log.segments)
