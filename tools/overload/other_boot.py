"""Simulation of a reboot in a stopped proxy's folder."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from storage.folder import CHECKPOINT, read_checkpoint
from storage.ids.layout import MANIFEST, read_manifest
from tools.benchmarks import page_cache

DROP_CACHES: Final = Path("/proc/sys/vm/drop_caches")
ANOTHER_BOOT: Final = "00000000-another-boot"


def forget_boot(data_dir: Path) -> int:
    """Set another boot id in all checkpoints and manifests. Return how many files were changed. The
    proxy then checks all its files, because a reboot may have lost data that was not synced."""
    checkpoints, manifests = [*data_dir.rglob(CHECKPOINT)], [*data_dir.rglob(MANIFEST)]
    for path in checkpoints:
        path.write_bytes(replace(read_checkpoint(path), boot_id=ANOTHER_BOOT).to_bytes())
    for path in manifests:
        path.write_bytes(replace(read_manifest(path), boot_id=ANOTHER_BOOT).to_bytes())
    return len(checkpoints) + len(manifests)


def drop_page_cache(folders: Iterable[Path], *, whole_machine: bool) -> str:
    """Write dirty pages to disk and drop cached pages. If `whole_machine` is set and allowed, do so
    for the whole machine. Otherwise do so for the files in these folders. Return a description for
    the report."""
    if whole_machine:
        os.sync()
        with suppress(OSError):
            DROP_CACHES.write_text("3")
            return "of the whole machine (/proc/sys/vm/drop_caches)"
    for folder in folders:
        page_cache.forget(folder)
    return "of the proxy's and the broker's files (posix_fadvise)"
