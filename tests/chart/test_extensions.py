"""Values by which a cluster's own rules and resources enter the chart."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from tests.support.chart.chart_comments import documented
from tests.support.chart.chart_files import CHART
from tests.support.chart.chart_sets import EVERYTHING, GATEWAY, LOCAL_AUDIT, TOPICS_BY_THE_HOOK
from tests.support.chart.rendering import NAME, Document, refusal, rendered

pytestmark = pytest.mark.usefixtures("helm")

OTHER_NAMES: dict[str, str] = yaml.safe_load((CHART / "files" / "other-names.yaml").read_text())
EVERYWHERE = {**LOCAL_AUDIT, **TOPICS_BY_THE_HOOK}
"""Values with the pods of the proxy, the topics' Job, the audit and the test."""


def labels(document: Document) -> dict[str, str]:
    found: dict[str, str] = document["metadata"]["labels"]
    return found


def test_common_labels_are_on_every_resource_and_pod_but_not_on_volumes_and_selectors() -> None:
    values = {**EVERYWHERE, "commonLabels": {"team": "payments"}}
    release = rendered(values)
    own = [one for one in release.documents if one["metadata"]["name"].startswith(NAME)]
    assert len(own) > 8
    assert {labels(one).get("team") for one in own} == {"payments"}
    spec = release.stateful_set["spec"]
    assert labels(spec["template"])["team"] == "payments"
    assert "team" not in spec["selector"]["matchLabels"]
    assert "team" not in labels(spec["volumeClaimTemplates"][0])


def test_closer_labels_win() -> None:
    release = rendered(EVERYTHING)
    assert labels(release.stateful_set)["team"] == "platform"
    assert labels(release.stateful_set["spec"]["template"])["team"] == "payments"
    assert labels(release.one("ServiceMonitor"))["release"] == "prometheus"


@pytest.mark.parametrize("where", ["commonLabels", "podLabels"])
@pytest.mark.parametrize("label", ["app.kubernetes.io/component", "helm.sh/chart"])
def test_labels_of_the_chart_are_not_for_users(where: str, label: str) -> None:
    assert f"sets the label {label}" in refusal({where: {label: "mine"}})


def test_every_pod_has_the_host_aliases_and_every_container_the_variables() -> None:
    alias = {"ip": "192.0.2.1", "hostnames": ["kafka"]}
    source = {"secretRef": {"name": "login"}}
    release = rendered({**EVERYWHERE, "hostAliases": [alias], "envFrom": [source]})
    pods = dict(release.pod_specs())
    assert set(pods) == {"StatefulSet", "Job", "CronJob", "Pod"}
    assert all(pod["hostAliases"] == [alias] for pod in pods.values())
    containers = [pods[kind]["containers"][0] for kind in ("StatefulSet", "Job", "CronJob")]
    assert all(container["envFrom"] == [source] for container in containers)


def test_containers_of_the_user_stand_before_and_beside_the_proxy() -> None:
    release = rendered(EVERYTHING)
    assert [one["name"] for one in release.pod["initContainers"]] == ["first"]
    assert [one["name"] for one in release.pod["containers"]] == ["proxy", "beside"]
    about = release.stateful_set["spec"]["template"]["metadata"]["annotations"]
    assert about["kubectl.kubernetes.io/default-container"] == "proxy"
    others = [pod for kind, pod in release.pod_specs() if kind in {"Job", "CronJob", "Pod"}]
    assert all(len(pod["containers"]) == 1 and "initContainers" not in pod for pod in others)


def test_extra_objects_are_templates_as_text_or_as_yaml() -> None:
    release = rendered(EVERYTHING)
    assert release.one("ConfigMap", "more")["data"] == {"release": "dp"}
    assert release.one("ConfigMap", "dp-text")
    call = {"kind": "ConfigMap", "metadata": {"name": '{{ include "proxy.fullname" . }}-more'}}
    assert rendered({"extraObjects": [call]}).one("ConfigMap", f"{NAME}-more")


def test_the_way_of_updating_is_the_users() -> None:
    assert rendered().stateful_set["spec"]["updateStrategy"] == {"type": "RollingUpdate"}
    waiting = {"updateStrategy": {"type": "OnDelete"}}
    assert rendered(waiting).stateful_set["spec"]["updateStrategy"] == {"type": "OnDelete"}


def test_a_spread_counts_the_proxys_pods_unless_it_says_otherwise() -> None:
    zone = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    own = {**zone, "labelSelector": {"matchLabels": {"app": "mine"}}}
    release = rendered({"topologySpreadConstraints": [zone, own, zone]})
    first, second, third = release.pod["topologySpreadConstraints"]
    selector = release.stateful_set["spec"]["selector"]
    assert first == third == {**zone, "labelSelector": selector}
    assert second == own
    assert "topologySpreadConstraints" not in rendered({"topologySpreadConstraints": []}).pod


@pytest.mark.parametrize(
    ("values", "image"),
    [
        ({"image": {"registry": "r.io:5000"}}, "r.io:5000/kafka-delay-proxy"),
        ({"global": {"imageRegistry": "r.io"}}, "r.io/kafka-delay-proxy"),
        ({"global": {"imageRegistry": "x"}, "image": {"registry": "y"}}, "y/kafka-delay-proxy"),
        (
            {"global": {"imageRegistry": "x"}, "image": {"repository": "r.io/team/proxy"}},
            "r.io/team/proxy",
        ),
        (
            {"global": {"imageRegistry": "x"}, "image": {"repository": "team/proxy"}},
            "x/team/proxy",
        ),
    ],
)
def test_the_registry_of_the_image_is_named_once(values: dict[str, Any], image: str) -> None:
    assert rendered(values).container["image"].rpartition(":")[0] == image


def test_the_audit_takes_the_proxys_registry_or_its_own() -> None:
    def image(audits: dict[str, str]) -> str:
        values = {"image": {"registry": "r.io"}, "audit": {"enabled": True, "image": audits}}
        pod = dict(rendered(values).pod_specs())["CronJob"]
        return str(pod["containers"][0]["image"]).rpartition(":")[0]

    assert image({}) == "r.io/kafka-delay-proxy"
    assert image({"registry": "other.io", "repository": "spark"}) == "other.io/spark"
    assert image({"repository": "other.io/spark"}) == "other.io/spark"


def test_secrets_of_a_parent_chart_for_the_registry_are_added() -> None:
    parent = {"imagePullSecrets": ["one", {"name": "two"}]}
    release = rendered({"global": parent, "imagePullSecrets": [{"name": "own"}]})
    for _, pod in release.pod_specs():
        assert [one["name"] for one in pod["imagePullSecrets"]] == ["own", "one", "two"]


def test_ingress_and_route_lead_to_the_admin_service() -> None:
    ingress, everything = rendered(EVERYTHING).one("Ingress")["spec"], rendered(EVERYTHING)
    service = everything.one("Service", f"{NAME}-admin")
    (rule,) = ingress["rules"]
    (path,) = rule["http"]["paths"]
    assert (rule["host"], path["path"]) == ("delays.example.com", "/")
    assert path["backend"]["service"]["name"] == service["metadata"]["name"]
    assert path["backend"]["service"]["port"]["name"] == service["spec"]["ports"][0]["name"]
    assert ingress["tls"][0]["hosts"] == ["delays.example.com"]
    assert ingress["ingressClassName"] == "nginx"

    route = rendered(GATEWAY).one("HTTPRoute")
    service = rendered(GATEWAY).one("Service", f"{NAME}-admin")
    assert route["apiVersion"] == "gateway.networking.k8s.io/v1"
    assert route["spec"]["parentRefs"] == [{"name": "gateway", "namespace": "gateways"}]
    assert route["spec"]["hostnames"] == ["delays.example.com"]
    (target,) = route["spec"]["rules"][0]["backendRefs"]
    assert target["name"] == service["metadata"]["name"]
    assert target["port"] == service["spec"]["ports"][0]["port"]


def test_tokens_with_roles_open_an_ingress() -> None:
    ingress = {"enabled": True, "hosts": ["delays.example.com"]}
    file = {"config": {"admin": {"tokens": {"me": {"role": "viewer", "file": "/more/me"}}}}}
    secret = {"credentials": {"adminTokens": {"me": {"role": "viewer", "existingSecret": "me"}}}}
    assert rendered({"ingress": ingress, **file}).one("Ingress")
    assert rendered({"ingress": ingress, **secret}).one("Ingress")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"ingress": {"enabled": True}}, "ingress.hosts"),
        ({"httpRoute": {"enabled": True}}, "httpRoute.parentRefs"),
        ({"ingress": {"enabled": True, "hosts": ["a.example.com"]}}, "need a token"),
        ({"serviceMonitor": {"enabled": True}, "podMonitor": {"enabled": True}}, "twice"),
    ],
)
def test_values_that_cannot_work_are_refused(values: dict[str, Any], said: str) -> None:
    assert said in refusal(values)


def test_a_pod_monitor_finds_each_pod_with_metrics_and_sends_the_token_to_the_proxy_alone() -> None:
    release = rendered(GATEWAY)
    spec = release.one("PodMonitor")["spec"]
    ports = {
        port["name"]
        for one in release.all("StatefulSet")
        for port in one["spec"]["template"]["spec"]["containers"][0]["ports"]
    }
    endpoints = {one["port"]: one for one in spec["podMetricsEndpoints"]}
    assert set(endpoints) == ports == {"admin", "metrics"}
    (chosen,) = spec["selector"]["matchExpressions"]
    for one in release.all("StatefulSet"):
        pods = labels(one["spec"]["template"])
        assert spec["selector"]["matchLabels"].items() <= pods.items()
        assert pods[chosen["key"]] in chosen["values"]
    assert endpoints["admin"]["authorization"]["credentials"]["name"] == "scraper"
    assert "authorization" not in endpoints["metrics"]


@pytest.mark.parametrize("kind", ["ServiceMonitor", "PodMonitor"])
def test_monitors_relabel_targets_and_metrics(kind: str) -> None:
    rules = {"relabelings": [{"action": "keep"}], "metricRelabelings": [{"action": "drop"}]}
    release = rendered({kind[0].lower() + kind[1:]: {"enabled": True, **rules}})
    (endpoints,) = (one for one in release.one(kind)["spec"].values() if isinstance(one, list))
    assert {key: endpoints[0][key] for key in rules} == rules


def below(names: list[str], value: object) -> dict[str, Any]:
    first, *rest = names
    return {first: below(rest, value) if rest else value}


@pytest.mark.parametrize(("other", "ours"), OTHER_NAMES.items(), ids=OTHER_NAMES)
def test_a_name_of_other_charts_is_refused_with_ours(other: str, ours: str) -> None:
    refused = refusal(below(other.split("."), [{"x": 1}]))
    assert f"{other} is a name of other charts. This chart has {ours}." in refused
    known = {".".join(value.path) for value in documented(CHART / "values.yaml")}
    assert set(re.findall(r"[\w.]+", ours.partition(",")[0])) - {"or"} <= known
    assert other not in known
