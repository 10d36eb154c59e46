"""Findings of `check` on the disk of the data folder."""

import os
import shutil
from pathlib import Path

import pytest

from proxy.cli.check import settings_findings
from proxy.cli.check_configs import Finding, Severity
from proxy.config.settings import Settings
from proxy.recovery.local_state import locked_data_dir


def finding(data_dir: Path, reserve_bytes: int | None) -> Finding:
    settings = Settings(data_dir=data_dir / "not-yet", disk_reserve_bytes=reserve_bytes)
    (found,) = [one for one in settings_findings(settings) if one.subject == "disk_reserve"]
    return found


def test_room_beyond_the_reserve_is_well(tmp_path: Path) -> None:
    found = finding(tmp_path, 1)
    assert found.severity is Severity.OK
    assert found.found.endswith("1 bytes are reserved")


def test_less_than_the_reserve_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _folder: (1 << 30, 0, 1 << 20))
    found = finding(tmp_path, None)
    assert found.severity is Severity.STOP
    assert (
        "1 MiB of 1 GiB are free, 51.2 MiB are reserved: `run` leaves its partitions" in found.found
    )


def test_a_reserve_larger_than_the_disk_stops(tmp_path: Path) -> None:
    found = finding(tmp_path, 1 << 59)
    assert found.severity is Severity.STOP
    assert "no record would ever be read" in found.found


def test_files_that_other_users_may_read_are_warned_of(tmp_path: Path) -> None:
    shard = tmp_path / "timer.ingress-0@abc"
    shard.mkdir()
    shard.chmod(0o755)

    def said() -> Finding:
        settings = Settings(data_dir=tmp_path)
        return next(one for one in settings_findings(settings) if one.subject == "data_dir")

    assert said().severity is Severity.WARN
    assert f"chmod -R go= {tmp_path}" in (said().remedy or "")
    shard.chmod(0o700)
    tmp_path.chmod(0o700)
    assert said().severity is Severity.OK


def test_a_data_folder_that_a_running_proxy_has_is_named(tmp_path: Path) -> None:
    def said() -> Finding:
        settings = Settings(data_dir=tmp_path)
        return next(one for one in settings_findings(settings) if one.subject == "data_dir")

    with locked_data_dir(tmp_path):
        assert (said().severity, "in use by a running proxy" in said().found) == (
            Severity.ADVICE,
            True,
        )
    assert said().severity is Severity.OK


@pytest.mark.parametrize(
    ("inodes", "free", "is_warned"), [(20, 0, True), (10**6, 10**6, False), (0, 0, False)]
)
def test_few_free_inodes_are_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inodes: int, free: int, *, is_warned: bool
) -> None:
    left = os.statvfs_result((4096, 4096, 1000, 900, 900, inodes, free, free, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _folder: left)
    settings = Settings(data_dir=tmp_path / "not-yet")
    found = [one for one in settings_findings(settings) if one.subject == "inodes"]
    assert [one.severity for one in found] == [Severity.WARN] * is_warned
