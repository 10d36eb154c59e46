"""A mapped file is truncated under a running process: it dies, and its successor rebuilds."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from storage.opening import open_store
from storage.options import Options
from storage.store import Committed

WRITE_INTO_WHAT_WAS_CUT = """
import os, pathlib, sys
from storage.opening import open_store
from storage.options import Options
from storage.store import Committed

folder = pathlib.Path(sys.argv[1])
store = open_store("wheel", folder, Committed(0, -1, 0, 0), Options(slots=600_000))
store.put([(500_000_000, 0, "orders", b"x")])
store.flush(1)
os.truncate(folder / "wheel", 4_096)
store.put([(501_000_000, 1, "orders", b"x")])
store.flush(2)
"""


def test_process_dies_and_the_next_one_puts_the_folder_aside(tmp_path: Path) -> None:
    folder = tmp_path / "shard"
    script = [sys.executable, "-c", WRITE_INTO_WHAT_WAS_CUT, str(folder)]
    assert subprocess.run(script, check=False).returncode == -signal.SIGBUS
    committed = Committed(0, -1, 0, 2)
    store = open_store("wheel", folder, committed, Options(slots=600_000), rebuild=True)
    assert (store.report.state, store.pending()) == ("put aside", 0)
    store.close()
