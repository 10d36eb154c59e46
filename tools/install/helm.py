"""Helm as a command."""

from __future__ import annotations

import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from tests.support.chart.chart_files import CHART
from tests.support.chart.rendering import NAMESPACE, RELEASE

HOOKS_WITHIN: Final = "60s"
END_WITHIN_S: Final = 180


class HelmRefused(Exception):
    """Error of Helm, in its own words."""


@dataclass(frozen=True, slots=True)
class Helm:
    program: Path
    kubeconfig: Path
    home: Path

    def install(self, values: dict[str, Any]) -> None:
        """Install the chart. Helm waits for hooks, not for pods."""
        self._with_values("install", CHART, values)

    def upgrade(self, values: dict[str, Any], chart: Path = CHART) -> None:
        self._with_values("upgrade", chart, values)

    def rollback(self, revision: int) -> None:
        self._run("rollback", RELEASE, str(revision), "--timeout", HOOKS_WITHIN)

    def uninstall(self) -> None:
        self._run("uninstall", RELEASE)

    def history(self) -> list[str]:
        revisions = yaml.safe_load(self._run("history", RELEASE, "--output", "yaml"))
        return [revision["status"] for revision in revisions]

    def version(self) -> str:
        return self._run("version", "--template", "{{.Version}}").strip()

    def _with_values(self, verb: str, chart: Path, values: dict[str, Any]) -> None:
        with tempfile.NamedTemporaryFile("w", dir=self.home, suffix=".yaml") as file:
            yaml.safe_dump(values, file)
            file.flush()
            options = ["--values", file.name, "--timeout", HOOKS_WITHIN]
            self._run(verb, RELEASE, str(chart), *options)

    def _run(self, *arguments: str) -> str:
        folders = {
            f"HELM_{what}_HOME": str(self.home / what) for what in ("CACHE", "CONFIG", "DATA")
        }
        where = [f"--kubeconfig={self.kubeconfig}", f"--namespace={NAMESPACE}"]
        ran = subprocess.run(
            [str(self.program), *arguments, *where],
            env={**os.environ, **folders},
            capture_output=True,
            text=True,
            timeout=END_WITHIN_S,
            check=False,
        )
        if ran.returncode:
            raise HelmRefused(ran.stderr.strip())
        return ran.stdout
