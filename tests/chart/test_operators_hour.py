"""The operator's hour names only Kubernetes objects that the chart installs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.chart.chart_files import CHART
from tests.support.chart.rendering import NAMESPACE, rendered

pytestmark = pytest.mark.usefixtures("helm")

MADE = {"credentials": {"adminToken": {"create": True}}}
REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs/operations/hour.md").read_text("utf-8").partition("## On Kubernetes")[2]
RELEASE = re.findall(r"helm install (\S+)", PAGE)[0]
NAMED = {
    "StatefulSet": r"statefulset/([\w-]+)",
    "Secret": r"get secret ([\w-]+)",
    "Service": r"--admin ([\w-]+):",
}


@pytest.mark.parametrize(("kind", "written"), NAMED.items(), ids=NAMED)
def test_each_resource_on_the_page_is_one_of_the_chart(kind: str, written: str) -> None:
    named = set(re.findall(written, PAGE))
    assert named
    assert named <= {one["metadata"]["name"] for one in rendered(MADE, release=RELEASE).all(kind)}


def test_pods_port_token_and_namespace_are_those_of_the_chart() -> None:
    assert "`credentials.adminToken.create: true`" in PAGE
    release = rendered(MADE, release=RELEASE)
    pods, secret = release.all("StatefulSet")[0], release.all("Secret")[0]
    name, port = pods["metadata"]["name"], release.all("Service")[0]["spec"]["ports"][0]["port"]
    assert set(re.findall(r"pod/([\w-]+)-\d", PAGE)) == {name}
    assert set(re.findall(r"(?:-pods:|-0 )(\d{4})\b", PAGE)) == {str(port)}
    assert set(re.findall(r'\.data "(\w+)"', PAGE)) == set(secret["data"])
    assert set(re.findall(r"(?:--namespace|-n) (\w+)", PAGE)) == {NAMESPACE}


def test_values_and_folders_on_the_page_exist() -> None:
    values = (CHART / "values.yaml").read_text("utf-8")
    assert {"prometheusRule:", "serviceMonitor:"} <= {line.strip() for line in values.splitlines()}
    for folder in set(re.findall(r"helm (?:install|upgrade) \S+ (\S+)", PAGE)):
        assert (REPOSITORY / folder / "Chart.yaml").is_file()
