"""Rendering of the chart by the program helm on the PATH, or by Helm as a library."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from copy import deepcopy
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.support.chart.chart_files import CHART

RELEASE: Final = "dp"
NAMESPACE: Final = "delays"
NAME: Final = "dp-kafka-delay-proxy"
KUBERNETES: Final = "1.25.0"
"""Kubernetes version for rendering. A helm built from source would assume a very old version."""
RENDER_WITHIN_S: Final = 180

Values = Mapping[str, Any]
Document = dict[str, Any]


class HelmMissing(Exception):
    """The program and the library are both missing."""


class ChartRefused(Exception):
    """Helm refused the values. The message is Helm's."""


def has_helm() -> bool:
    """Return whether charts can be rendered. The library does not exist for every system."""
    return shutil.which("helm") is not None or find_spec("helm_python") is not None


def rendered(values: Values | None = None, chart: Path = CHART, release: str = RELEASE) -> Release:
    """Return the resources of `helm install`. Raise ChartRefused if Helm refuses the values.
    Results are cached."""
    return Release(_rendered(json.dumps(values or {}), chart, release))


def refusal(values: Values) -> str:
    with pytest.raises(ChartRefused) as refused:
        rendered(values)
    return str(refused.value)


class Release:
    def __init__(self, text: str) -> None:
        self.text = text

    @property
    def documents(self) -> list[Document]:
        return deepcopy(_parsed(self.text))

    @property
    def templates(self) -> set[str]:
        return set(re.findall(r"(?m)^# Source: .*/(.+)$", self.text))

    def all(self, kind: str) -> list[Document]:
        return [document for document in self.documents if document["kind"] == kind]

    def one(self, kind: str, name: str = NAME) -> Document:
        found = [one for one in self.all(kind) if one["metadata"]["name"] == name]
        assert len(found) == 1, f"{len(found)} {kind} named {name}"
        return found[0]

    @property
    def stateful_set(self) -> Document:
        return self.one("StatefulSet")

    @property
    def pod(self) -> Document:
        spec: Document = self.stateful_set["spec"]["template"]["spec"]
        return spec

    @property
    def container(self) -> Document:
        container: Document = self.pod["containers"][0]
        return container

    @property
    def settings(self) -> Document:
        settings: Document = yaml.safe_load(self.one("ConfigMap")["data"]["proxy.yaml"])
        return settings

    def pod_specs(self) -> Iterator[tuple[str, Document]]:
        for document in self.documents:
            if document["kind"] in {"StatefulSet", "Job"}:
                yield document["kind"], document["spec"]["template"]["spec"]
            if document["kind"] == "CronJob":
                yield "CronJob", document["spec"]["jobTemplate"]["spec"]["template"]["spec"]
            if document["kind"] == "Pod":
                yield "Pod", document["spec"]


@cache
def _parsed(text: str) -> list[Document]:
    return [document for document in yaml.safe_load_all(text) if document]


@cache
def _rendered(values: str, chart: Path, release: str) -> str:
    if program := shutil.which("helm"):
        return _by_program(program, values, chart, release)
    if not has_helm():
        raise HelmMissing("Put the program helm on the PATH, or install helm-python-sdk.")
    return _by_library(values, chart, release)


def _by_program(program: str, values: str, chart: Path, release: str) -> str:
    where = ["--namespace", NAMESPACE, "--kube-version", KUBERNETES]
    ran = subprocess.run(
        [program, "template", release, str(chart), *where, "--values", "-"],
        input=values,
        capture_output=True,
        text=True,
        timeout=RENDER_WITHIN_S,
        check=False,
    )
    if ran.returncode:
        raise ChartRefused(ran.stderr)
    return ran.stdout


def _by_library(values: str, chart: Path, release: str) -> str:
    import helm_python

    with helm_python.Chart.load(str(chart)) as loaded:
        try:
            files = loaded.render(json.loads(values), name=release, namespace=NAMESPACE)
        except helm_python.HelmError as error:
            raise ChartRefused(str(error)) from None
    manifests = ((name, text) for name, text in sorted(files.items()) if name.endswith(".yaml"))
    return "".join(f"---\n# Source: {name}\n{text}\n" for name, text in manifests if text.strip())
