"""Opening a folder whose rows lie with a `Backing`, at the broker's truth."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from storage.errors import StorageFull, StoreDamaged, StoreMismatch
from storage.options import Options
from storage.shard.checkpoint import Checkpoint
from storage.shard.files import Files
from storage.shard.folder import FolderLock
from storage.shard.ledger import Ledger
from storage.sorted.backed_store import BackedStore
from storage.sorted.backing import Backing
from storage.wheel.opening import Committed, refuse_ahead
from storage.wheel.wheel_files import DAMAGED
from storage.wheel.wheel_store import OpenReport


@dataclass(frozen=True, slots=True)
class Attach:
    """How a kind of backing is opened: `backing` may raise StoreDamaged and OSError; a folder
    opens only with the same `bound` numbers."""

    backing: Callable[[Path, Options, Files], Backing]
    bound: dict[str, int]


def open_backed(
    attach: Attach,
    folder: Path,
    committed: Committed,
    options: Options,
    *,
    rebuild: bool,
    files: Files,
) -> BackedStore:
    """As `storage.wheel.opening.open_store`, for any backing."""
    lock = FolderLock(folder)
    opening = _Opening(attach, lock, committed, options, files)
    try:
        return opening.trusted_or_new(rebuild)
    except OSError as error:
        lock.release()
        raise StorageFull(folder, error) from error
    except BaseException:
        lock.release()
        raise


@dataclass(frozen=True, slots=True)
class _Opening:
    attach: Attach
    lock: FolderLock
    committed: Committed
    options: Options
    files: Files

    def trusted_or_new(self, rebuild: bool) -> BackedStore:
        damaged = self.lock.folder / DAMAGED
        try:
            if damaged.exists():
                raise StoreDamaged(damaged.read_text(errors="replace"))
            return self.assemble(None)
        except StoreMismatch as mismatch:
            if not rebuild:
                raise
            reason = str(mismatch)
        except (StoreDamaged, LookupError, TypeError, ValueError) as damage:
            reason = str(damage)
        return self.assemble(OpenReport("put aside", reason, self.lock.put_aside(self.files)))

    def assemble(self, report: OpenReport | None) -> BackedStore:
        folder = self.lock.folder
        backing = self.attach.backing(folder, self.options, self.files)
        try:
            checkpoint = backing.checkpoint
            if checkpoint is not None:
                self.check(checkpoint)
            found = OpenReport("new" if checkpoint is None else "reopened")
            return BackedStore(
                folder,
                self.options,
                self.attach.bound,
                backing,
                self.ledger(checkpoint or Checkpoint(self.attach.bound)),
                report or found,
                self.lock.release,
            )
        except BaseException:
            backing.close()
            raise

    def check(self, checkpoint: Checkpoint) -> None:
        """Raise StoreDamaged or StoreMismatch where the folder must not be used."""
        folder = self.lock.folder
        refuse_ahead(folder, checkpoint, self.committed)
        for name, asked in self.attach.bound.items():
            if checkpoint.options.get(name) != asked:
                raise StoreMismatch(folder, name, checkpoint.options.get(name), asked)

    def ledger(self, checkpoint: Checkpoint) -> Ledger:
        at = self.committed
        covered = min(at.next_offset, max(checkpoint.covered, at.floor))
        return Ledger(
            watermark_ms=at.watermark_ms,
            cursor=at.cursor,
            counted=(checkpoint.watermark_ms, checkpoint.cursor),
            floor=at.floor,
            covered=covered,
            next_offset=covered,
            counts=checkpoint.counts.copy(),
        )
