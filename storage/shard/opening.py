"""Opening a shard's folder at the broker's committed offset, whatever its kind."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias

from storage.errors import StorageFull, StoreDamaged, StoreMismatch
from storage.options import Options, StoreKind
from storage.shard.checkpoint import CHECKPOINT, Checkpoint
from storage.shard.damage_guard import DamageGuard, damage_noted
from storage.shard.disk_tier import DiskTier
from storage.shard.files import Files
from storage.shard.folder import FolderLock, kind_of
from storage.shard.ledger import Ledger
from storage.shard.memory.target_numbers import TargetNumbers
from storage.shard.tiered_store import TieredStore
from storage.store import Committed, Key, OpenReport


@dataclass(frozen=True, slots=True)
class Opening:
    """What a kind is told to open its disk tier."""

    folder: Path
    kind: StoreKind
    committed: Committed
    options: Options
    files: Files

    def ledger(self, checkpoint: Checkpoint, bound: dict[str, int]) -> Ledger:
        """The ledger to begin with. Raises StoreDamaged when the checkpoint is ahead of the broker,
        StoreMismatch when it was made with other numbers than `bound`."""
        at = self.committed
        ended = (checkpoint.watermark_ms, checkpoint.cursor)
        refuse_ahead(self.folder, checkpoint.covered, ended, at)
        for name, asked in bound.items():
            if checkpoint.options.get(name) != asked:
                raise StoreMismatch(self.folder, name, checkpoint.options.get(name), asked)
        covered = min(at.next_offset, max(checkpoint.covered, at.floor))
        targets = checkpoint.counts.targets
        numbers = TargetNumbers(
            targets.numbers.by_number, self.options.most_names, is_closed=targets.others > 0
        )
        return Ledger(
            watermark_ms=at.watermark_ms,
            cursor=at.cursor,
            counted=ended,
            floor=at.floor,
            covered=covered,
            next_offset=covered,
            counts=checkpoint.counts.copy(numbers),
        )


class OpenedTier(NamedTuple):
    """A disk tier with its ledger; the options may be bounded by what the tier can take."""

    tier: DiskTier
    ledger: Ledger
    options: Options
    is_new: bool


OpenTier: TypeAlias = Callable[[Opening], OpenedTier]
"""Opens or makes a kind's files. Raises StoreDamaged, StoreMismatch, OSError."""


def open_folder(open_tier: OpenTier, opening: Opening, *, rebuild: bool) -> TieredStore:
    """Open or make a store; a folder that must not be used is put aside and an empty store given
    instead, one made otherwise than asked for only if `rebuild` is set.

    Raises StoreLocked, StoreMismatch, StorageFull."""
    try:
        lock = FolderLock(opening.folder)
    except OSError as error:
        raise StorageFull(opening.folder, error) from error
    try:
        return _trusted_or_new(open_tier, opening, lock, rebuild)
    except OSError as error:
        lock.release()
        raise StorageFull(opening.folder, error) from error
    except BaseException:
        lock.release()
        raise


def refuse_ahead(folder: Path, covered: int, ended: Key, committed: Committed) -> None:
    """Raise StoreDamaged when the folder knows more than the broker has committed."""
    if covered > committed.next_offset:
        raise StoreDamaged(
            f"{folder} covers offsets up to {covered}, but the broker's committed "
            f"offset is {committed.next_offset}: it was reset"
        )
    if 0 < covered <= committed.distrusted:
        raise StoreDamaged(
            f"{folder} covers offsets up to {covered} only, from before the watermark was set back"
        )
    if ended > (committed.watermark_ms, committed.cursor):
        raise StoreDamaged(
            f"{folder} stands at watermark {ended[0]}/{ended[1]}, beyond "
            f"the broker's {committed.watermark_ms}/{committed.cursor}"
        )


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
        raise StoreDamaged(f"{folder} was made by an earlier version, or its {kind} is gone")
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
