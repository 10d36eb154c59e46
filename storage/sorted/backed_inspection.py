"""`verify` and `dump` for any `Backing`; changes nothing."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

from storage.errors import StoreDamaged
from storage.shard.checkpoint import Checkpoint
from storage.shard.counts import Counts
from storage.sorted.backing import Backing, Key, Rows
from storage.wheel.inspection import Verdict
from storage.wheel.wheel_files import DAMAGED

READ_AT_ONCE = 1024
READ_BYTES = 32 * 1024 * 1024
FAR_MS = 2**62

Look: TypeAlias = Callable[[Path], AbstractContextManager[Backing]]


def verify_backing(folder: Path, look: Look) -> Verdict:
    """Read every row and compare what pends with what the checkpoint counts."""
    verdict = Verdict(folder)
    if (folder / DAMAGED).exists():
        verdict.findings.append((folder / DAMAGED).read_text(errors="replace"))
    try:
        with look(folder) as backing:
            if backing.checkpoint is not None:
                _examine(verdict, backing, backing.checkpoint)
    except FileNotFoundError as missing:
        verdict.findings.append(f"{missing.filename} is missing: nothing was ever checkpointed")
    except (StoreDamaged, OSError, ValueError) as damage:
        verdict.findings.append(str(damage))
    return verdict


def dump_backing(folder: Path, look: Look) -> Iterator[dict[str, Any]]:
    """The entries on disk as `storage.wheel.inspection.dump` gives them."""
    with look(folder) as backing:
        for rows in _all_rows(backing):
            for due_ms, offset, target, body in zip(*rows[:4], strict=True):
                yield {"due_ms": due_ms, "offset": offset, "target": target, "body": body}


def _all_rows(backing: Backing) -> Iterator[Rows]:
    at = backing.checkpoint
    after: Key = (-1, -1) if at is None else (at.watermark_ms, at.cursor)
    rows = backing.read(after, FAR_MS, READ_AT_ONCE, READ_BYTES)
    while rows.dues_ms:
        yield rows
        after = rows.dues_ms[-1], rows.offsets[-1]
        rows = backing.read(after, FAR_MS, READ_AT_ONCE, READ_BYTES)


def _examine(verdict: Verdict, backing: Backing, checkpoint: Checkpoint) -> None:
    seen = Counts()
    last: Key = (checkpoint.watermark_ms, checkpoint.cursor)
    for rows in _all_rows(backing):
        named = rows.entries()
        if named[0][:2] <= last or any(a[:2] >= b[:2] for a, b in pairwise(named)):
            verdict.findings.append(f"{verdict.folder}: rows are out of order at {named[0][:2]}")
        last = named[-1][:2]
        seen.add(named)
    said = checkpoint.counts
    if seen.targets != said.targets or not said.chunks.counts_same(seen.chunks):
        verdict.findings.append(f"{dict(seen.targets)} pend, {dict(said.targets)} are counted")
    verdict.covered = checkpoint.covered
    verdict.watermark_ms, verdict.cursor = checkpoint.watermark_ms, checkpoint.cursor
    verdict.pending = verdict.records = seen.total
    verdict.pending_by_target = dict(seen.targets)
    verdict.segments = backing.files
