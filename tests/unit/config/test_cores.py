"""The core count of `workers: auto`, from the container quota of a Linux kernel."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from proxy.config.machine import usable_cores

CORES = 8


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(CORES)), raising=False)


def cores(folder: Path, own: str, files: dict[str, str]) -> int:
    """Count cores with these cgroup files. `own` names the groups of the process."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "own").write_text(own)
    return usable_cores(folder, folder / "own")


@pytest.mark.parametrize(
    ("quota", "expected"),
    [("250000 100000", 2), ("50000 100000", 1), ("max 100000", CORES), ("nonsense", CORES)],
)
def test_whole_cores_of_a_quota_count_and_at_least_one(
    tmp_path: Path, quota: str, expected: int
) -> None:
    assert cores(tmp_path, "0::/\n", {"cpu.max": quota}) == expected


def test_a_quota_of_a_group_above_counts_too(tmp_path: Path) -> None:
    files = {"pod/cpu.max": "300000 100000", "pod/app/cpu.max": "max 100000"}
    assert cores(tmp_path, "0::/pod/app\n", files) == 3


def test_quotas_of_the_first_version_of_cgroups_count(tmp_path: Path) -> None:
    files = {
        "cpu/docker/cpu.cfs_quota_us": "400000\n",
        "cpu/docker/cpu.cfs_period_us": "100000\n",
    }
    assert cores(tmp_path, "7:memory:/other\n4:cpu,cpuacct:/docker\n", files) == 4


def test_without_quota_the_cores_that_it_is_bound_to_count(tmp_path: Path) -> None:
    files = {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}
    assert cores(tmp_path, "4:cpu:/\n", files) == CORES
    assert usable_cores(tmp_path / "none", tmp_path / "none") == CORES
