"""Opening a shard's folder, and looking into it, by the kind that the setting `store` names."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from storage import inspection
from storage.folder import CHECKPOINT, DAMAGED, Files, kind_of
from storage.inspection import FolderReport, Look
from storage.options import Options, StoreKind
from storage.store import Committed
from storage.tiered_store import Opening, OpenTier, TieredStore, open_folder
from storage.wheel.inspection import look_into_wheel
from storage.wheel.tier import open_wheel


class _Kind(NamedTuple):
    open_tier: OpenTier
    look: Look


def open_store(
    kind: StoreKind,
    folder: Path,
    committed: Committed,
    options: Options | None = None,
    *,
    rebuild: bool = False,
    files: Files | None = None,
) -> TieredStore:
    """Open or make the store in `folder`; its `report` says how it was found.

    The caller then reads [store.covered, committed.next_offset) from the broker again and puts
    what has not ended. A damaged folder, or one ahead of the broker, is put aside and an empty
    store given instead; so is one of another kind, or made with other options, when `rebuild` is
    set. Raises StoreLocked, StoreMismatch, StorageFull."""
    opening = Opening(folder, kind, committed, options or Options(), files or Files())
    return open_folder(_kind(kind).open_tier, opening, rebuild=rebuild)


def verify(folder: Path) -> FolderReport:
    """Check what can be checked of the folder, whatever its kind; an empty one is sound."""
    kind = kind_of(folder)
    is_written = any((folder / name).exists() for name in (CHECKPOINT, DAMAGED))
    if kind != "rocksdb" and not is_written:
        return FolderReport(folder)
    return inspection.verify_folder(folder, _kind(kind).look)


def dump(folder: Path) -> Iterator[dict[str, Any]]:
    """The entries on disk in (due, offset) order: due_ms, offset, target, body (as encoded).

    Raises StoreDamaged, and FileNotFoundError when there is no checkpoint."""
    return inspection.dump_folder(folder, _kind(kind_of(folder)).look)


def _kind(kind: StoreKind | None) -> _Kind:
    if kind == "rocksdb":
        # An optional package: only those who ask for it need it.
        from storage.rocksdb.tier import look_into_rocksdb, open_rocksdb

        return _Kind(open_rocksdb, look_into_rocksdb)
    return _Kind(open_wheel, look_into_wheel)
