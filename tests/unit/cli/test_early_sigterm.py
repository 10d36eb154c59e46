"""SIGTERM during the imports ends the process."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SENDS_ITSELF_SIGTERM = "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n"
AS_FIRST_PROCESS = ("unshare", "--pid", "--fork", "--kill-child")


def exit_code(folder: Path, *arguments: str, before: tuple[str, ...] = ()) -> int:
    (folder / "typer.py").write_text(SENDS_ITSELF_SIGTERM + "raise SystemExit(99)\n", "utf-8")
    path = os.pathsep.join([str(folder), str(Path(__file__).parents[3])])
    command = [*before, sys.executable, "-m", "proxy", *arguments]
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(command, env=environment, check=False, timeout=120).returncode


def test_run_ends_with_exit_code_zero(tmp_path: Path) -> None:
    assert exit_code(tmp_path, "run") == 0


def test_another_command_dies_of_the_signal(tmp_path: Path) -> None:
    assert exit_code(tmp_path, "check") == -signal.SIGTERM


@pytest.mark.parametrize(("command", "expected"), [("run", 0), ("audit", 128 + signal.SIGTERM)])
def test_as_first_process_of_a_container(tmp_path: Path, command: str, expected: int) -> None:
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([*AS_FIRST_PROCESS, "true"], check=False).returncode:
        pytest.skip("a PID namespace cannot be made here")
    assert exit_code(tmp_path, command, before=AS_FIRST_PROCESS) == expected
