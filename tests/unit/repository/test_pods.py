"""The parts of `make test-pods` that need no node."""

from __future__ import annotations

import hashlib
import json
import re
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.support.chart.rendering import has_helm, rendered
from tools.pods import __main__ as command
from tools.pods import cgroups, images, probe
from tools.pods.node import SYSCTLS, Node
from tools.pods.steps import step
from tools.pods.trial import lateness, values

MOUNTS = """\
tmpfs /sys/fs/cgroup tmpfs rw,mode=755 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0
cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,nosuid,relatime,cpu,cpuacct 0 0
cgroup /sys/fs/cgroup/systemd cgroup rw,xattr,release_agent=/lib/agent,name=systemd 0 0
"""


def test_control_groups_are_found_with_the_options_that_mount_them_again() -> None:
    found = list(cgroups.hierarchies(MOUNTS))

    assert [one.options for one in found] == ["cpu,cpuacct", "none,name=systemd"]
    assert cgroups.missing(found) == {"cpuset", "devices", "freezer", "memory", "pids"}


def test_a_machine_that_cannot_run_a_node_is_told_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(command, "FOLDER", tmp_path)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda _name: "/bin/there")
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS)
    monkeypatch.setattr(cgroups, "MOUNTS", mounts)

    assert command.main() == 3
    assert "No control groups of version 1 for cpuset" in capsys.readouterr().err

    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert command.main() == 3
    assert "Only root" in capsys.readouterr().err


def test_nothing_of_the_machine_is_written_but_settings_of_the_own_network() -> None:
    node = Node(Path("/runs/one"), Path("/roots/node"))
    script = node.preparation(cgroups.hierarchies(MOUNTS), {"kubelet": Path("/cache/kubelet")})

    written = re.findall(r" > (\S+)", script)
    below = [path for path in written if path.startswith("/runs/one/")]

    assert len(below) >= len(SYSCTLS)
    assert all(path.startswith("/proc/sys/net/") for path in set(written) - set(below))
    assert script.index("remount,bind,ro /runs/one/root/proc/sys") < script.index("ip link")


def test_an_image_says_what_it_holds(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "file").write_text("content")

    images.write_layout(tmp_path / "made", root, {"one:1": {"Cmd": ["a"]}, "two:2": {}})

    blobs = tmp_path / "made/blobs/sha256"
    for blob in blobs.iterdir():
        assert hashlib.sha256(blob.read_bytes()).hexdigest() == blob.name
    manifests = json.loads((tmp_path / "made/index.json").read_text())["manifests"]
    assert [_name(one) for one in manifests] == ["one:1", "two:2"]
    layers = [_read(blobs, one)["layers"] for one in manifests]
    assert layers[0] == layers[1]
    assert _read(blobs, _read(blobs, manifests[0])["config"])["config"] == {"Cmd": ["a"]}


def test_another_file_or_another_content_makes_another_image(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("a")
    two.write_text("b")
    before = images.fingerprint(tmp_path, [Path("one"), Path("two")])

    assert images.fingerprint(tmp_path, [Path("two"), Path("one")]) == before
    assert images.fingerprint(tmp_path, [Path("one")]) != before
    two.write_text("c")
    assert images.fingerprint(tmp_path, [Path("one"), Path("two")]) != before


@pytest.mark.skipif(not has_helm(), reason="no Helm here")
def test_the_pods_use_the_images_that_are_made() -> None:
    release = rendered(values("10.0.0.1:9092"))

    used = {one["image"] for _, spec in release.pod_specs() for one in spec["containers"]}

    assert {f"docker.io/library/{name}" for name in used} == {
        f"{images.NAME}:{tag}" for tag in images.TAGS.values()
    }


def test_a_probe_tells_an_open_port_from_a_closed_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "WITHIN_S", 0)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        assert [probe.state(how, address) for how in ("open", "closed")] == ["open", "open"]
    assert probe.state("open", address) == "closed"


def test_a_step_that_failed_does_not_look_like_one_that_held(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with step("first") as seen:
        seen("one")
        seen("two")
    with pytest.raises(AssertionError), step("second"):
        raise AssertionError

    first, second = capsys.readouterr().out.splitlines()
    assert first.endswith("first: one, two")
    assert second.endswith("second: NOT HELD")


def test_lateness_has_the_middle_and_the_worst() -> None:
    assert lateness([1, 2, 1900]) == "3 records late by 2 ms, at most 1,900 ms"


def _name(manifest: dict[str, Any]) -> str:
    return str(manifest["annotations"]["io.containerd.image.name"])


def _read(blobs: Path, described: dict[str, Any]) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((blobs / described["digest"].partition(":")[2]).read_text())
    return read
