"""Helm as a library, with one release in a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.support.chart.chart_files import CHART
from tests.support.chart.rendering import NAMESPACE, RELEASE

HOOKS: Final = "hookOnly"


class HelmRefused(Exception):
    """Error of Helm, in its own words."""


class Helm:
    """Actions on the release. Helm waits for hooks, not for pods."""

    def __init__(self, kubeconfig: Path, hooks_within_s: int = 60) -> None:
        import helm_python

        self._config = helm_python.Config(kubeconfig_path=kubeconfig, namespace=NAMESPACE)
        self._within: dict[str, Any] = {"timeout": hooks_within_s}
        self._waiting: dict[str, Any] = {**self._within, "wait": HOOKS}

    def install(self, values: dict[str, Any]) -> None:
        with _refusals():
            self._config.install(str(CHART), RELEASE, values, **self._waiting)

    def upgrade(self, values: dict[str, Any], chart: Path = CHART) -> None:
        with _refusals():
            self._config.upgrade(str(chart), RELEASE, values, **self._waiting)

    def rollback(self, revision: int) -> None:
        with _refusals():
            self._config.rollback(RELEASE, version=revision, **self._waiting)

    def uninstall(self) -> None:
        with _refusals():
            self._config.uninstall(RELEASE, **self._waiting)

    def test(self) -> None:
        with _refusals():
            self._config.test(RELEASE, **self._within)

    def history(self) -> list[str]:
        with _refusals():
            return [revision["status"] for revision in self._config.history(RELEASE)]


def version() -> str:
    import helm_python

    return helm_python.helm_sdk_version()


@contextmanager
def _refusals() -> Iterator[None]:
    import helm_python

    try:
        yield
    except helm_python.HelmError as error:
        raise HelmRefused(str(error)) from None
