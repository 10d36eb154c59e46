"""Helm, as a person calls it."""

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
    """Helm ended with an error; its own words."""


@dataclass(frozen=True, slots=True)
class Helm:
    """Works on one cluster, with a home of its own."""

    program: Path
    kubeconfig: Path
    home: Path

    def install(self, values: dict[str, Any]) -> None:
        """The chart as it lies here. Hooks are waited for, pods are not."""
        self._with_values("install", CHART, values)

    def upgrade(self, values: dict[str, Any], chart: Path = CHART) -> None:
        """Of the release, with these values alone."""
        self._with_values("upgrade", chart, values)

    def rollback(self, revision: int) -> None:
        """To an earlier state."""
        self._run("rollback", RELEASE, str(revision), "--timeout", HOOKS_WITHIN)

    def uninstall(self) -> None:
        """Whatever can be removed."""
        self._run("uninstall", RELEASE)

    def history(self) -> list[str]:
        """The states of the revisions, from the first."""
        revisions = yaml.safe_load(self._run("history", RELEASE, "--output", "yaml"))
        return [revision["status"] for revision in revisions]

    def version(self) -> str:
        """As v3.19.5."""
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
