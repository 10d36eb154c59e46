"""The unit for systemd: it names a command, variables and folders that exist, and is closed."""

import shutil
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest
import typer

from proxy.cli.app import app
from proxy.config.sources import known_paths, variable_name
from proxy.worker.run import STOP_WITHIN_S
from tests.support.distributions import REPOSITORY

UNIT = REPOSITORY / "examples/systemd/kafka-delay-proxy.service"
INSTALL = (REPOSITORY / "docs/operations/install.md").read_text("utf-8")
ANALYZE = shutil.which("systemd-analyze")
MOST_EXPOSURE = 20
"""In tenths. systemd calls up to 4.0 OK."""


@pytest.fixture(scope="module")
def service() -> dict[str, str]:
    read = ConfigParser(strict=False, interpolation=None)
    read.optionxform = str  # type: ignore[assignment, method-assign]
    read.read_string(UNIT.read_text("utf-8"))
    return dict(read["Service"])


def test_it_starts_a_command_that_exists_with_options_that_it_takes(
    service: dict[str, str],
) -> None:
    program, command, *options = service["ExecStart"].split()
    root = typer.main.get_command(app)
    found = root.commands[command]  # type: ignore[attr-defined]
    context = found.make_context(command, list(options), resilient_parsing=True)
    assert context.params["config"] == Path("/etc/kafka-delay-proxy/proxy.yaml")
    assert not context.args
    assert Path(program).name == root.name
    assert f"python3 -m venv {Path(program).parents[1]}\n" in INSTALL


def test_its_folders_are_those_of_the_page(service: dict[str, str]) -> None:
    name, _, value = service["Environment"].partition("=")
    assert name in {variable_name(path) for path in known_paths()}
    assert value == f"%S/{service['StateDirectory']}"
    assert f"/var/lib/{service['StateDirectory']}" in INSTALL
    environment = service["EnvironmentFile"].removeprefix("-")
    assert f"install -m 600 /dev/null {environment} " in INSTALL


def test_it_leaves_the_proxy_time_to_stop_and_starts_it_again(service: dict[str, str]) -> None:
    assert service["KillSignal"] == "SIGTERM"
    assert float(service["TimeoutStopSec"]) >= STOP_WITHIN_S + 15
    assert service["Restart"] == "always"
    assert "StartLimitIntervalSec=0\n" in UNIT.read_text("utf-8")


@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_it_and_finds_it_closed(tmp_path: Path, service: dict[str, str]) -> None:
    here = tmp_path / UNIT.name
    program = service["ExecStart"].split()[0]
    here.write_text(UNIT.read_text("utf-8").replace(program, sys.executable), "utf-8")
    threshold = f"--threshold={MOST_EXPOSURE}"
    for words in (("verify", "--man=no"), ("security", "--offline=yes", threshold)):
        done = subprocess.run(
            [str(ANALYZE), *words, str(here)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr
        assert "Unknown" not in done.stderr, done.stderr
