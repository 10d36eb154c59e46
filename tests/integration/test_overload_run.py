"""Small overload runs: they work and find no errors. Times are not judged."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.slow]

REPOSITORY = Path(__file__).parents[2]
FOUND_NOTHING = {"missing", "duplicate", "early", "dead letters", "MiB beyond the bound"}


def _run_small(scenario: str, folder: Path) -> dict[str, Any]:
    output, plot = folder / "found.json", folder / "found.svg"
    command = [sys.executable, "-m", "tools.overload", "--scenario", scenario, "--scale", "0.0001"]
    command += ["--output", str(output), "--plot", str(plot), "--folder", str(folder / "data")]
    done = subprocess.run(
        command, cwd=REPOSITORY, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr + done.stdout
    assert f"| {scenario} |" in done.stdout
    assert "<svg" in plot.read_text()
    assert not [path for path in (folder / "data").rglob("*") if path.is_file()]
    found: dict[str, Any] = json.loads(output.read_text())["scenarios"][scenario]
    return found


def test_more_than_can_be_delivered_comes_once_and_then_all_is_on_time(tmp_path: Path) -> None:
    found = _run_small("faster", tmp_path)
    assert set(found["faults"]) == FOUND_NOTHING
    assert found["records"]["load"] > 0
    assert {"drained after the load's end, s", "written/s"} <= set(found["figures"])
    assert {what for _, what in found["marks"]} >= {"start", "ready", "load ends", "drained"}
    assert all(anonymous and files for _, anonymous, files, _, _ in found["samples"])


def test_what_waits_is_there_after_a_reboot_and_what_is_due_comes_once(tmp_path: Path) -> None:
    found = _run_small("reboot", tmp_path)
    assert set(found["faults"]) > FOUND_NOTHING
    assert found["figures"]["pending afterwards"] == found["records"]["waiting"]
    assert found["figures"]["files of another boot"] >= 4
    assert found["figures"]["found in the folders"] > 0
    assert [what for _, what in found["marks"] if what in {"start", "killed"}] == [
        "start",
        "killed",
        "start",
    ]
