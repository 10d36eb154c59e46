"""The kinds of store behind the setting `store`: which one a folder holds, and opening it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, get_args

from storage.errors import StorageFull, StoreMismatch
from storage.options import Options
from storage.shard.files import Files
from storage.shard.folder import FolderLock
from storage.sorted.backed_opening import Attach, open_backed
from storage.sorted.backed_store import BackedStore
from storage.wheel import inspection
from storage.wheel.inspection import Verdict
from storage.wheel.opening import Committed, open_store
from storage.wheel.wheel_files import BODIES, CHECKPOINT, DAMAGED, LOG, WHEEL
from storage.wheel.wheel_store import OpenReport, WheelStore

Kind: TypeAlias = Literal["wheel", "rocksdb", "levels"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)


def kind_of(folder: Path) -> Kind | None:
    """The kind that made the folder; None where nothing was written yet."""
    if (folder / "rocksdb").is_dir():
        return "rocksdb"
    if (folder / "levels").is_dir():
        return "levels"
    if any((folder / name).exists() for name in (CHECKPOINT, WHEEL, LOG, BODIES)):
        return "wheel"
    return None


def open_kind(
    kind: Kind,
    folder: Path,
    committed: Committed,
    options: Options | None = None,
    *,
    rebuild: bool = False,
    files: Files | None = None,
) -> WheelStore | BackedStore:
    """As `storage.wheel.opening.open_store`, for a store of any kind; another kind's folder is put
    aside when `rebuild` is set. Raises StoreLocked, StoreMismatch, StorageFull."""
    options, files = options or Options(), files or Files()
    report = _put_other_kind_aside(kind, folder, rebuild, files)
    store = _open(kind, folder, committed, options, rebuild, files)
    store.report = report or store.report
    return store


def verify(folder: Path) -> Verdict:
    """Check what can be checked of the folder, whatever its kind; an empty one is sound."""
    kind = kind_of(folder)
    if kind == "rocksdb":
        from storage.sorted.rocks import verify_rocks

        return verify_rocks(folder)
    if not any((folder / name).exists() for name in (CHECKPOINT, DAMAGED)):
        return Verdict(folder)
    if kind == "levels":
        from storage.sorted.levels import verify_levels

        return verify_levels(folder)
    return inspection.verify(folder)


def dump(folder: Path) -> Iterator[dict[str, Any]]:
    """The entries on disk, as `storage.wheel.inspection.dump`, whatever the folder's kind."""
    kind = kind_of(folder)
    if kind == "rocksdb":
        from storage.sorted.rocks import dump_rocks

        return dump_rocks(folder)
    if kind == "levels":
        from storage.sorted.levels import dump_levels

        return dump_levels(folder)
    return inspection.dump(folder)


def _open(
    kind: Kind,
    folder: Path,
    committed: Committed,
    options: Options,
    rebuild: bool,
    files: Files,
) -> WheelStore | BackedStore:
    if kind == "wheel":
        return open_store(folder, committed, options, rebuild=rebuild, files=files)
    attach = _attach(kind)
    return open_backed(attach, folder, committed, options, rebuild=rebuild, files=files)


def _attach(kind: Kind) -> Attach:
    """Loads only what the kind needs."""
    if kind == "rocksdb":
        from storage.sorted.rocks import ROCKS_DB

        return ROCKS_DB
    from storage.sorted.levels import LEVEL_FIFOS

    return LEVEL_FIFOS


def _put_other_kind_aside(
    kind: Kind, folder: Path, rebuild: bool, files: Files
) -> OpenReport | None:
    if kind_of(folder) in {None, kind}:
        return None
    lock = FolderLock(folder)
    try:
        mismatch = StoreMismatch(folder, "store", kind_of(folder), kind)
        if not rebuild:
            raise mismatch
        return OpenReport("put aside", str(mismatch), lock.put_aside(files))
    except OSError as error:
        raise StorageFull(folder, error) from error
    finally:
        lock.release()
