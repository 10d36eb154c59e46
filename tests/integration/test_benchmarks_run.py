"""Small benchmark runs: they work and find no errors. Times are not judged."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tools.benchmarks.peers.rocketmq_jars import are_rocketmq_jars_cached

pytestmark = pytest.mark.integration

REPOSITORY = Path(__file__).parents[2]
NO_FAULT = {"early": 0, "missing": 0, "duplicate": 0}


def _run_quickly(scenarios: str, folder: Path, *more: str) -> tuple[dict[str, Any], str]:
    report = folder / "report.json"
    command = [sys.executable, "-m", "tools.benchmarks", "--quick", "--only", scenarios]
    command += ["--json", str(report), "--folder", str(folder), *more]
    done = subprocess.run(
        command, cwd=REPOSITORY, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return json.loads(report.read_text()), " ".join(done.stdout.split())


def _better_than_can_be(folder: Path) -> Path:
    path = folder / "earlier.json"
    figures = [{"name": name, "value": 100.0} for name in ("burst / relay", "light p50")]
    machine = {"cpu": "another", "cores": 64}
    path.write_text(json.dumps({"date": "2026-01-01", "machine": machine, "figures": figures}))
    return path


@pytest.mark.slow
def test_quick_benchmarks_find_no_fault_and_tell_what_they_measured(tmp_path: Path) -> None:
    earlier, plot = _better_than_can_be(tmp_path), tmp_path / "overload.svg"
    report, printed = _run_quickly(
        "light,burst,overload,idle", tmp_path, "--against", str(earlier), "--plot", str(plot)
    )

    assert report["faults"] == {"early": 0, "missing": 0, "duplicate": 0, "lost": 0}
    assert set(report["scenarios"]) == {"relay", "burst", "overload", "light", "idle"}
    assert {"cpu", "cores", "kafka", "librdkafka"} <= set(report["machine"])
    names = [figure["name"] for figure in report["figures"]]
    assert {"relay", "burst / relay", "burst CPU / relay", "light p50", "light p99"} <= set(names)
    assert "earlier.json (another, 64 cores); worse beyond the noise: burst / relay" in printed
    overload = report["scenarios"]["overload"]
    sent = sum(second["sent"] for second in overload["seconds"])
    assert sent == sum(second["delivered"] for second in overload["seconds"]) > 0
    assert plot.read_text().startswith("<?xml")


def _compare_quickly(peer: str, scenarios: str, folder: Path) -> dict[str, dict[str, object]]:
    command = [sys.executable, "-m", "tools.benchmarks.peers", "--quick", "--peers", peer]
    command += ["--only", scenarios, "--results", str(folder)]
    done = subprocess.run(
        command, cwd=REPOSITORY, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr + done.stdout
    paths = folder.glob(f"{peer}.*.json")
    return {path.name.split(".")[1]: json.loads(path.read_text())["found"] for path in paths}


def test_the_comparison_of_stores_prints_one_table_and_measures_nothing_twice(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-m", "tools.benchmarks.stores", "--results", str(tmp_path)]
    chosen = ["--only", "waiting", "--bodies", "100", "--kinds", "wheel,rocksdb"]
    for arguments in ([*chosen, "--scale", "0.002"], ["--markdown"]):
        done = subprocess.run(
            [*command, *arguments],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr + done.stdout
    lines = done.stdout.splitlines()
    assert [line.split(" | ")[3] for line in lines[-2:]] == ["wheel", "rocksdb"]
    assert len(list(tmp_path.glob("*.json"))) == 4


def _faults(verdict: object) -> object:
    assert isinstance(verdict, dict)
    return {name: verdict[name] for name in NO_FAULT}


def test_the_comparison_drives_a_relay_and_the_proxy_through_the_same_load(tmp_path: Path) -> None:
    for peer in ("relay", "ours"):
        found = _compare_quickly(peer, "burst", tmp_path)
        assert _faults(found["burst"]["verdict"]) == NO_FAULT


@pytest.mark.long
@pytest.mark.skipif(not are_rocketmq_jars_cached(), reason="RocketMQ's jars were never fetched")
def test_the_comparison_drives_rocketmq_through_every_scenario(tmp_path: Path) -> None:
    found = _compare_quickly("rocketmq-100ms", "light,streams,burst,pending", tmp_path)

    assert set(found) == {"light", "streams", "burst", "pending"}
    assert _faults(found["light"]["verdict"]) == NO_FAULT
    assert _faults(found["burst"]["verdict"]) == NO_FAULT
