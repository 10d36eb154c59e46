"""What an operator may see of a store's files, whatever its kind."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from storage.counts import Counts, TargetCounter
from storage.errors import StoreDamaged
from storage.folder import Checkpoint, damage_noted
from storage.store import NO_COUNTS, Entry, TargetCounts

NAMED_FINDINGS = 10


@dataclass(slots=True)
class FolderReport:
    """What `verify` saw; all is well when `findings` is empty."""

    folder: Path
    findings: list[str] = field(default_factory=list)
    covered: int = 0
    watermark_ms: int = -1
    cursor: int = -1
    pending: int = 0
    pending_by_target: TargetCounts = NO_COUNTS
    pending_bytes: int = 0
    runs: int = 0
    records: int = 0
    segments: int = 0


class FolderReader(Protocol):
    """A folder opened for reading. What is damaged may raise StoreDamaged, OSError, ValueError."""

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The last one; None where nothing was written yet."""
        ...

    def check(self, report: FolderReport) -> None:
        """Read everything; add what is wrong and how much there is."""
        ...

    def entries(self) -> Iterator[Entry]:
        """The entries that pend, in (due, offset) order."""
        ...


Look: TypeAlias = Callable[[Path], AbstractContextManager[FolderReader]]


def verify_folder(folder: Path, look: Look) -> FolderReport:
    """Check everything in the folder that can be checked."""
    report = FolderReport(folder)
    damage = damage_noted(folder)
    if damage is not None:
        report.findings.append(damage)
    try:
        with look(folder) as reader:
            checkpoint = reader.checkpoint
            if checkpoint is not None:
                report.covered = checkpoint.covered
                report.watermark_ms, report.cursor = checkpoint.watermark_ms, checkpoint.cursor
                report.pending_by_target = checkpoint.counts.targets.shown()
                report.pending_bytes = checkpoint.counts.total_bytes
                reader.check(report)
    except FileNotFoundError as missing:
        report.findings.append(f"{missing.filename} is missing: nothing was ever checkpointed")
    except (StoreDamaged, OSError, ValueError) as damage_met:
        report.findings.append(str(damage_met))
    return report


def dump_folder(folder: Path, look: Look) -> Iterator[dict[str, Any]]:
    """The entries on disk in (due, offset) order: due_ms, offset, target, body (as encoded).

    Raises StoreDamaged, and FileNotFoundError when there is no checkpoint."""
    with look(folder) as reader:
        for due_ms, offset, target, body in reader.entries():
            yield {"due_ms": due_ms, "offset": offset, "target": target, "body": body}


def count_findings(seen: Counts, checkpoint: Checkpoint) -> list[str]:
    """What pends other than the checkpoint counts, as sentences."""
    counted = checkpoint.counts
    findings = [
        *_target_findings(seen.targets, counted.targets, ""),
        *_target_findings(seen.target_bytes, counted.target_bytes, " bytes"),
    ]
    if not counted.chunks.counts_same(seen.chunks):
        findings.append("the pending offsets are not the ones the checkpoint counts")
    return findings


def _target_findings(found: TargetCounter, wanted: TargetCounter, what: str) -> list[str]:
    names = sorted(found.by_name.keys() | wanted.by_name.keys())
    differing = [name for name in names if found.by_name[name] != wanted.by_name[name]]
    findings = [
        f"{found.by_name[name]}{what} for {name} pend, {wanted.by_name[name]} are counted"
        for name in differing[:NAMED_FINDINGS]
    ]
    if len(differing) > NAMED_FINDINGS:
        findings.append(f"so do the counts of {len(differing) - NAMED_FINDINGS} more targets")
    if found.others != wanted.others:
        findings.append(f"{found.others}{what} for other targets pend, {wanted.others} are counted")
    return findings
