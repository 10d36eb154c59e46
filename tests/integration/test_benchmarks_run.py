"""The benchmarks, run small: that they work and find nothing wrong. No time is judged here."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

REPOSITORY = Path(__file__).parents[2]


def _run_quickly(scenarios: str, folder: Path) -> dict[str, object]:
    report = folder / "report.json"
    command = [sys.executable, "-m", "tests.benchmarks", "--quick", "--only", scenarios]
    command += ["--json", str(report), "--folder", str(folder)]
    done = subprocess.run(
        command, cwd=REPOSITORY, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr + done.stdout
    content: dict[str, object] = json.loads(report.read_text())
    return content


def test_quick_benchmarks_find_no_fault_and_tell_what_they_measured(tmp_path: Path) -> None:
    report = _run_quickly("light,burst", tmp_path)

    assert report["faults"] == {"early": 0, "missing": 0, "duplicate": 0, "lost": 0}
    assert set(report["scenarios"]) == {"relay", "burst", "light"}  # type: ignore[call-overload]
    assert {"cpu", "cores", "kafka", "librdkafka"} <= set(report["machine"])  # type: ignore[call-overload]
    names = [figure["name"] for figure in report["figures"]]  # type: ignore[attr-defined]
    assert {"relay", "burst / relay", "light p50", "light p99"} <= set(names)
