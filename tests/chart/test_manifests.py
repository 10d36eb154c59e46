"""Rendered manifests are valid for the oldest supported Kubernetes version and the newest."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.support.chart.chart_files import CHART
from tests.support.chart.chart_sets import EVERYTHING, GATEWAY, SETS
from tests.support.chart.rendering import NAME, Document, Release, rendered

pytestmark = pytest.mark.usefixtures("helm")

OLDEST, NEWEST = "1.25", "1.37"
OPERATORS = {"ServiceMonitor", "PodMonitor", "PrometheusRule"}
"""Kinds of the Prometheus operator."""
FOREIGN = {*OPERATORS, "HTTPRoute"}
"""Kinds for which Kubernetes has no schemas."""
WITHOUT_ONE_RESOURCE = {"extra-objects.yaml"}
KIND = re.compile(r"(?m)^kind:")
INFORMATION = 1
LONGEST_LABEL = 63
ADDED_BY_A_CRON_JOB = 11
IMMUTABLE = {f"app.kubernetes.io/{name}" for name in ("name", "instance", "component")}
ADDED_BY_A_REVISION = 11


@pytest.fixture(params=SETS)
def release(request: pytest.FixtureRequest) -> Release:
    return rendered(SETS[request.param])


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_every_resource_is_valid_in_the_strictest_sense(release: Release, version: str) -> None:
    own = [document for document in release.documents if document["kind"] not in FOREIGN]
    assert own
    for document in own:
        kubernetes_validate.validate(document, version, strict=True)


def test_every_volume_has_one_source(release: Release) -> None:
    for _, spec in release.pod_specs():
        for volume in spec.get("volumes", []):
            assert len(volume) == len(["name", "source"]), volume


def test_the_chart_asks_for_the_oldest_version_that_is_tried() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["kubeVersion"] == f">={OLDEST}.0-0"


def test_a_field_that_kubernetes_does_not_know_would_be_noticed() -> None:
    document = rendered().stateful_set
    document["spec"]["replica"] = 2
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(document, NEWEST, strict=True)


def test_every_template_holds_one_resource_and_all_are_used() -> None:
    templates = {path.name: path.read_text() for path in (CHART / "templates").glob("*.yaml")}
    several = {name for name, text in templates.items() if len(KIND.findall(text)) != 1}
    assert several == WITHOUT_ONE_RESOURCE
    without_files = {name for name, text in templates.items() if ".Files.Get" not in text}
    used = set().union(*(rendered(values).templates for values in SETS.values()))
    assert used >= without_files


def test_helm_itself_finds_nothing_to_complain_of() -> None:
    helm = pytest.importorskip("helm_python")
    found = helm.lint(str(CHART), EVERYTHING, strict=True, kube_version=f"v{OLDEST}.0")
    assert found["errors"] == []
    assert [one for one in found["messages"] if one["severity"] > INFORMATION] == []


def test_no_two_resources_of_a_kind_have_one_name(release: Release) -> None:
    names = [(one["kind"], one["metadata"]["name"]) for one in release.documents]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", ["dp", "a" * 53, "kafka-delay-proxy", "x" * 30 + "-proxy"])
def test_every_name_leaves_room_for_what_kubernetes_adds(name: str) -> None:
    release = rendered(EVERYTHING, release=name)
    added = {"CronJob": ADDED_BY_A_CRON_JOB, "StatefulSet": ADDED_BY_A_REVISION}
    for document in release.documents:
        called = document["metadata"]["name"]
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", called)
        assert len(called) + added.get(document["kind"], 0) <= LONGEST_LABEL


def test_long_names_that_begin_alike_stay_two() -> None:
    one, other = (rendered(release="a" * 50 + end).all("StatefulSet") for end in "bc")
    assert one[0]["metadata"]["name"] != other[0]["metadata"]["name"]


def test_every_reference_leads_to_a_resource_or_to_a_secret_of_the_user(release: Release) -> None:
    there = {(one["kind"], one["metadata"]["name"]) for one in release.documents}
    there.add(("ConfigMap", "before"))  # of the user, as an extra volume
    for kind, pod in release.pod_specs():
        named = {one["configMap"]["name"] for one in pod.get("volumes", []) if "configMap" in one}
        assert {("ConfigMap", name) for name in named} <= there
        account = ("ServiceAccount", pod["serviceAccountName"])
        assert account in there or (kind == "Job" and account[1] == "default")


def test_what_cannot_be_changed_later_carries_no_version() -> None:
    release = rendered(EVERYTHING)
    spec = release.stateful_set["spec"]
    claims = spec["volumeClaimTemplates"][0]["metadata"]["labels"]
    assert set(spec["selector"]["matchLabels"]) == set(claims) == IMMUTABLE
    assert spec["serviceName"] == "dp-kafka-delay-proxy-pods"


def test_selectors_find_the_pods_and_nothing_else() -> None:
    release = rendered(EVERYTHING)
    pods = release.stateful_set["spec"]["template"]["metadata"]["labels"]
    audit = release.one("CronJob", "dp-kafka-delay-proxy-audit")["spec"]["jobTemplate"]["spec"]
    others = audit["template"]["metadata"]["labels"]
    selectors = [
        release.one("Service", f"{NAME}-{which}")["spec"]["selector"] for which in ("pods", "admin")
    ]
    selectors.append(release.one("PodDisruptionBudget")["spec"]["selector"]["matchLabels"])
    for selector in selectors:
        assert selector.items() <= pods.items()
        assert not selector.items() <= others.items()


def _operator_problems(document: Document) -> list[str]:
    spec: dict[str, Any] = document["spec"]
    if document["kind"] == "PrometheusRule":
        rules = [rule for group in spec["groups"] for rule in group["rules"]]
        return [f"no expression: {rule}" for rule in rules if not rule.get("expr")]
    name = "endpoints" if document["kind"] == "ServiceMonitor" else "podMetricsEndpoints"
    fields = {"port", "path", "interval", "scrapeTimeout", "authorization"}
    fields |= {"relabelings", "metricRelabelings", "scheme", "tlsConfig"}
    unknown = set(spec) - {"selector", name}
    unknown |= {key for endpoint in spec[name] for key in set(endpoint) - fields}
    return [f"unknown: {name}" for name in unknown]


def test_what_is_meant_for_the_prometheus_operator_has_its_form() -> None:
    for document in [*rendered(EVERYTHING).documents, *rendered(GATEWAY).documents]:
        if document["kind"] in OPERATORS:
            assert document["apiVersion"] == "monitoring.coreos.com/v1"
            assert _operator_problems(document) == []


@pytest.fixture
def chart_with_files(tmp_path: Path) -> Path:
    copy = tmp_path / CHART.name
    shutil.copytree(CHART, copy)
    (copy / "files").mkdir(exist_ok=True)
    (copy / "files" / "alerts.yaml").write_text(
        "groups:\n  - name: proxy\n    rules:\n      - alert: Late\n        expr: lag > 1\n"
        "        annotations: {summary: 'late on {{ $labels.instance }}'}\n"
    )
    (copy / "files" / "dashboard.json").write_text('{\n  "title": "{{instance}}"\n}\n')
    return copy


def test_alerts_and_dashboard_are_passed_on_as_they_are(chart_with_files: Path) -> None:
    release = rendered(EVERYTHING, chart_with_files)
    rule = release.one("PrometheusRule")
    assert _operator_problems(rule) == []
    said = rule["spec"]["groups"][0]["rules"][0]["annotations"]["summary"]
    assert said == "late on {{ $labels.instance }}"
    dashboard = release.one("ConfigMap", "dp-kafka-delay-proxy-dashboard")
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert '"title": "{{instance}}"' in next(iter(dashboard["data"].values()))
    kubernetes_validate.validate(dashboard, NEWEST, strict=True)


def runbooks(values: dict[str, Any], chart: Path = CHART) -> set[str]:
    """Return the links of all alerts, without their anchors."""
    rule = {"prometheusRule": {"enabled": True, **values}}
    groups = rendered(rule, chart).one("PrometheusRule")["spec"]["groups"]
    written = [one["annotations"].get("runbook_url", "") for g in groups for one in g["rules"]]
    assert len(written) > 20
    return {link.partition("#")[0] for link in written}


def test_runbook_links_are_absolute_or_left_out(tmp_path: Path) -> None:
    own = "https://docs.example.com/runbook"
    released = tmp_path / CHART.name
    shutil.copytree(CHART, released)
    with (released / "Chart.yaml").open("a") as about:
        about.write("home: https://example.com/site/\n")
    assert runbooks({}) == {""}
    assert runbooks({"runbookUrl": own}) == runbooks({"runbookUrl": own}, released) == {own}
    assert runbooks({}, released) == {"https://example.com/site/operations/runbook/"}


def test_the_page_links_to_the_same_docs_and_runbook(tmp_path: Path) -> None:
    released = tmp_path / CHART.name
    shutil.copytree(CHART, released)
    with (released / "Chart.yaml").open("a") as about:
        about.write("home: https://example.com/site/\n")
    own, values = "https://docs.example.com/runbook", {"prometheusRule": {"runbookUrl": ""}}
    assert links({}, CHART) == (None, None)
    assert links(values, released) == ("https://example.com/site/", None)
    assert links({"prometheusRule": {"runbookUrl": own}}, released)[1] == own
    other = {"config": {"admin": {"docs_url": "https://other.example.com"}}}
    assert links(other, released)[0] == "https://other.example.com"


def links(values: dict[str, Any], chart: Path) -> tuple[str | None, str | None]:
    settings = yaml.safe_load(rendered(values, chart).one("ConfigMap")["data"]["proxy.yaml"])
    return settings["admin"].get("docs_url"), settings["admin"].get("runbook_url")


def test_alerts_and_dashboard_are_left_out_unless_asked_for(chart_with_files: Path) -> None:
    release = rendered({}, chart_with_files)
    assert release.all("PrometheusRule") == []
    assert [one["metadata"]["name"] for one in release.all("ConfigMap")] == ["dp-kafka-delay-proxy"]
