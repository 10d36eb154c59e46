"""Opening a shard's register at the broker's committed offset."""

import shutil
from pathlib import Path

from storage.errors import StorageFull, StoreDamaged
from storage.ids.disk_register import DiskRegister
from storage.ids.lsm_state import LsmState
from storage.ids.options import IdOptions
from storage.ids.runs.id_hash import IdHash
from storage.ids.runs.idents import Hashing
from storage.ids.runs.manifest import MANIFEST, Manifest, new_manifest, read_manifest
from storage.ids.runs.run import Run
from storage.shard.checkpoint import boot_id
from storage.shard.damage_guard import damage_noted
from storage.shard.files import Files
from storage.shard.opening import refuse_ahead
from storage.store import Committed, OpenReport


def open_register(
    folder: Path,
    committed: Committed,
    options: IdOptions | None = None,
    *,
    files: Files | None = None,
    hashing: Hashing | None = None,
) -> DiskRegister:
    """Open or make the register in `folder`; its `report` says how it was found.

    The folder belongs to a shard that the caller has locked. The caller then does again, in order,
    every change caused by offsets in [register.covered, committed.next_offset). What is damaged or
    ahead of the broker is put aside (one stays) and an empty register, with `covered` 0, is given
    instead; so it is when all that was covered lies below the floor: it is useless, and what came
    between is not known. `hashing` stands in for the folder's own hash. Raises StorageFull."""
    files = files or Files()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        report, manifest, runs = OpenReport("new"), new_manifest(), list[Run]()
        try:
            found = _trusted(folder, committed)
            if found is not None and found.covered < committed.floor:
                files.remove(folder / MANIFEST)  # nothing below the floor is needed any more
            elif found is not None:
                hash_of = hashing or IdHash(bytes.fromhex(found.seed))
                runs = [Run(folder, summary, hash_of) for summary in found.runs]
                manifest = found
                _survived_restart(manifest, runs)
                report = OpenReport("reopened")
        except (StoreDamaged, ValueError, KeyError, TypeError) as damage:
            manifest, runs = new_manifest(), []
            report = OpenReport("put aside", str(damage), _put_aside(folder, files))
        _remove_unknown(folder, runs, files)
        options = options or IdOptions()
        state = LsmState(manifest, runs, committed, options.most_names)
        hashing = hashing or IdHash(bytes.fromhex(manifest.seed))
        return DiskRegister(folder, state, options, files, hashing, report)
    except OSError as error:
        raise StorageFull(folder, error) from error


def _trusted(folder: Path, committed: Committed) -> Manifest | None:
    """The manifest, None when there is none. Raises StoreDamaged when it must not be used."""
    damage = damage_noted(folder)
    if damage is not None:
        raise StoreDamaged(damage)
    try:
        manifest = read_manifest(folder / MANIFEST)
    except FileNotFoundError:
        return None
    ended = (manifest.watermark_ms, manifest.cursor)
    refuse_ahead(folder, manifest.covered, ended, committed)
    return manifest


def _survived_restart(manifest: Manifest, runs: list[Run]) -> None:
    """Look at everything: when the machine stopped, writes may have been lost in any order."""
    if manifest.boot_id and manifest.boot_id == boot_id():
        return
    for run in runs:
        for _ in run.check():
            pass


def _put_aside(folder: Path, files: Files) -> Path:
    aside = folder.with_name(f"{folder.name}.broken")
    shutil.rmtree(aside, ignore_errors=True)
    files.rename(folder, aside)
    folder.mkdir()
    return aside


def _remove_unknown(folder: Path, runs: list[Run], files: Files) -> None:
    known = {run.path for run in runs} | {folder / MANIFEST}
    for path in set(folder.iterdir()) - known:
        files.remove(path)
