"""Opens a store's folder, and checks such a folder offline."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from storage.counts import Counts, TargetCounter, no_counts, offsets_of
from storage.errors import StorageFull, StoreDamaged, StoreMismatch
from storage.folder import (
    CHECKPOINT,
    Checkpoint,
    DamageGuard,
    Files,
    FolderLock,
    damage_noted,
    kind_of,
)
from storage.options import Options, StoreKind
from storage.store import Committed, OpenReport
from storage.tier import FolderReader, FolderReport, Look, Opening, OpenTier
from storage.tiered_store import TieredStore
from storage.wheel.inspection import look_into_wheel
from storage.wheel.tier import open_wheel


def open_store(
    kind: StoreKind,
    folder: Path,
    committed: Committed,
    options: Options | None = None,
    *,
    rebuild: bool = False,
    files: Files | None = None,
) -> TieredStore:
    """Open or create the store. Its `report` says if the folder was new, reopened or put aside.

    The caller then ingests [store.covered, committed.next_offset) again. A folder that is damaged
    or ahead of the broker's commit is put aside. A folder of another kind or with other options is
    put aside if `rebuild`, else raises StoreMismatch. Raises StoreLocked, StorageFull."""
    opening = Opening(folder, kind, committed, options or Options(), files or Files())
    open_tier, _ = _kind(kind)
    try:
        lock = FolderLock(folder)
    except OSError as error:
        raise StorageFull(folder, error) from error
    try:
        return _trusted_or_new(open_tier, opening, lock, rebuild)
    except OSError as error:
        lock.release()
        raise StorageFull(folder, error) from error
    except BaseException:
        lock.release()
        raise


def _kind(kind: StoreKind | None) -> tuple[OpenTier, Look]:
    if kind == "rocksdb":
        # rocksdict is an optional package
        from storage.rocksdb import look_into_rocksdb, open_rocksdb

        return open_rocksdb, look_into_rocksdb
    return open_wheel, look_into_wheel


def _trusted_or_new(
    open_tier: OpenTier, opening: Opening, lock: FolderLock, rebuild: bool
) -> TieredStore:
    try:
        _refuse_marked(opening.folder, opening.kind)
        return _assembled(open_tier, opening, lock, None)
    except StoreMismatch as mismatch:
        if not rebuild:
            raise
        reason = str(mismatch)
    except (StoreDamaged, LookupError, TypeError, ValueError) as damage:
        reason = str(damage)
    aside = OpenReport("put aside", reason, lock.put_aside(opening.files))
    return _assembled(open_tier, opening, lock, aside)


def _refuse_marked(folder: Path, kind: StoreKind) -> None:
    found = kind_of(folder)
    if found not in {None, kind}:
        raise StoreMismatch(folder, "store", found, kind)
    if found is None and (folder / CHECKPOINT).exists():
        raise StoreDamaged(f"{folder} was made by an earlier version, or its {kind} is missing")
    damage = damage_noted(folder)
    if damage is not None:
        raise StoreDamaged(damage)


def _assembled(
    open_tier: OpenTier, opening: Opening, lock: FolderLock, aside: OpenReport | None
) -> TieredStore:
    tier, ledger, options, is_new = open_tier(opening)
    report = aside or OpenReport("new" if is_new else "reopened")
    guard = DamageGuard(opening.folder, opening.files)
    return TieredStore(opening.folder, tier, ledger, options, report, guard, lock.release)


NAMED_FINDINGS = 10


def verify(folder: Path) -> FolderReport:
    """Check everything in the folder. An empty folder is sound."""
    report = FolderReport(folder)
    damage = damage_noted(folder)
    if damage is not None:
        report.findings.append(damage)
    try:
        with _kind(kind_of(folder))[1](folder) as reader:
            _check(reader, report)
    except FileNotFoundError as missing:
        if missing.filename != str(folder / CHECKPOINT):
            report.findings.append(f"{missing.filename} is missing")
    except (StoreDamaged, OSError, ValueError) as damage_met:
        report.findings.append(str(damage_met))
    return report


def dump(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the entries on disk. Raises StoreDamaged, or FileNotFoundError without a checkpoint."""
    with _kind(kind_of(folder))[1](folder) as reader:
        for entries in reader.batches():
            for fires_ms, offset, target, body in entries:
                yield {"fires_ms": fires_ms, "offset": offset, "target": target, "body": body}


def _check(reader: FolderReader, report: FolderReport) -> None:
    checkpoint = reader.checkpoint
    if checkpoint is None:
        return
    report.covered = checkpoint.covered
    report.watermark_ms, report.cursor = checkpoint.watermark_ms, checkpoint.cursor
    report.pending_by_target = checkpoint.counts.targets.shown()
    report.pending_bytes = checkpoint.counts.total_bytes
    noted = len(report.findings)
    reader.check(report)
    if len(report.findings) > noted:
        return  # entries of damaged chains cannot be counted
    seen = no_counts(checkpoint.counts.targets.numbers)
    for entries in reader.batches():
        seen.add(entries, offsets_of(entries))
    report.pending = seen.total
    report.findings += _count_findings(seen, checkpoint)


def _count_findings(seen: Counts, checkpoint: Checkpoint) -> list[str]:
    counted = checkpoint.counts
    findings = [
        *_target_findings(seen.targets, counted.targets, " entries"),
        *_target_findings(seen.target_bytes, counted.target_bytes, " bytes"),
    ]
    if not counted.chunks.counts_same(seen.chunks):
        findings.append("the pending offsets differ from those in the checkpoint")
    return findings


def _target_findings(found: TargetCounter, wanted: TargetCounter, what: str) -> list[str]:
    names = sorted(found.by_name.keys() | wanted.by_name.keys())
    differing = [name for name in names if found.by_name[name] != wanted.by_name[name]]
    findings = [
        f"{name} has {found.by_name[name]} pending{what}, the checkpoint {wanted.by_name[name]}"
        for name in differing[:NAMED_FINDINGS]
    ]
    if len(differing) > NAMED_FINDINGS:
        findings.append(f"the counts of {len(differing) - NAMED_FINDINGS} more targets differ, too")
    if found.others != wanted.others:
        findings.append(
            f"other targets have {found.others} pending{what}, the checkpoint {wanted.others}"
        )
    return findings
