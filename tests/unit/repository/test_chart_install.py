"""The parts of `make test-chart-install` that need no API server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.install import go_built
from tools.install.go_built import GoProgram, NotBuilt, around, build
from tools.install.objects import differences
from tools.install.tools import PROGRAMS, ToolMissing, tools

OWN_GO_MOD = """\
module example.org/whole

require example.org/part v0.0.0

replace (
\texample.org/part => ./staging/src/example.org/part
\texample.org/other => example.org/fork v1.0.0
)
"""


def test_parts_that_lie_beside_a_program_are_taken_as_published() -> None:
    program = GoProgram("whole", "example.org/whole", "v1.34.2", "example.org/whole/cmd/whole")

    lines = around(program, OWN_GO_MOD).splitlines()

    assert "require example.org/whole v1.34.2" in lines
    assert "replace example.org/part => example.org/part v0.34.2" in lines
    assert "fork" not in "".join(lines)


def test_missing_programs_are_named_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", _folder_with("openssl", tmp_path))

    with pytest.raises(ToolMissing, match="etcd, kube-apiserver, go") as missing:
        tools()

    assert "apt install etcd-server" in str(missing.value)


def test_programs_in_the_cache_are_used_without_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", _folder_with("openssl", tmp_path))
    cache = tmp_path / "kafka-delay-proxy" / "tools"
    for program in PROGRAMS:
        _folder_with(program.name, cache, f"{program.name}-{program.version}")

    assert {path.parent.parent for path in tools().values()} == {cache}


def test_an_object_may_say_more_than_was_asked_for_but_not_otherwise() -> None:
    wanted = {"replicas": 2, "ports": [{"port": 1}], "labels": {}}

    assert list(differences(wanted, {"replicas": 2, "ports": [{"port": 1, "by": "x"}]})) == []
    assert list(differences(wanted, {"replicas": 3, "ports": [{"port": 1}]})) == [
        ".replicas: 3 instead of 2"
    ]
    assert list(differences(wanted, {"replicas": 2, "ports": []})) != []


def _folder_with(name: str, above: Path, inside: str = "bin") -> str:
    file = above / inside / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch(0o755)
    return str(file.parent)


def test_a_build_that_takes_too_long_is_told_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "bin" / "go"
    slow.parent.mkdir()
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}:/usr/bin:/bin")
    monkeypatch.setattr(go_built, "BUILD_WITHIN_S", 0.1)

    with pytest.raises(NotBuilt, match="Try again"):
        build(GoProgram("one", "example.org/one", "v1.0.0", "example.org/one"), tmp_path / "one")
