"""Objects beside the pods: services, network policies, the topic hook, the audit and the notes."""

from __future__ import annotations

import os
from typing import Any

import pytest

from proxy.cli.app import main as command
from tests.support.chart.chart_files import CHART
from tests.support.chart.chart_sets import (
    EVERYTHING,
    FOLLOWING_AUDIT,
    LOCAL_AUDIT,
    TOPICS_BY_THE_HOOK,
)
from tests.support.chart.rendering import NAME, NAMESPACE, RELEASE, rendered

pytestmark = pytest.mark.usefixtures("helm")

MOUNTED = "/etc/kafka-delay-proxy/proxy.yaml"


def test_a_headless_service_gives_pods_their_names_before_they_are_ready() -> None:
    service = rendered().one("Service", f"{NAME}-pods")["spec"]
    assert service["clusterIP"] == "None"
    assert service["publishNotReadyAddresses"]
    assert rendered().stateful_set["spec"]["serviceName"] == f"{NAME}-pods"


def test_whoever_asks_the_admin_service_again_asks_the_same_pod() -> None:
    """Otherwise a page, a cursor or a replay would continue at another pod."""
    service = rendered().one("Service", f"{NAME}-admin")["spec"]
    assert service["sessionAffinity"] == "ClientIP"


def test_prometheus_scrapes_every_pod_once_whether_ready_or_not() -> None:
    release = rendered({"serviceMonitor": {"enabled": True}})
    wanted = release.one("ServiceMonitor")["spec"]["selector"]["matchLabels"].items()
    found = [one for one in release.all("Service") if wanted <= one["metadata"]["labels"].items()]
    assert [one["metadata"]["name"] for one in found] == [f"{NAME}-pods"]


def test_one_pod_at_a_time_may_be_taken_away() -> None:
    spec = rendered().one("PodDisruptionBudget")["spec"]
    assert spec["maxUnavailable"] == 1
    assert "unhealthyPodEvictionPolicy" not in spec, "Kubernetes 1.25 does not know it"
    allowing = {"podDisruptionBudget": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}}
    spec = rendered(allowing).one("PodDisruptionBudget")["spec"]
    assert spec["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    assert rendered({"podDisruptionBudget": {"enabled": False}}).all("PodDisruptionBudget") == []


def policy(values: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = rendered(values).one("NetworkPolicy")["spec"]
    return spec


def open_ports(values: dict[str, Any]) -> list[int]:
    return [port["port"] for rule in policy(values)["egress"] for port in rule["ports"]]


@pytest.mark.parametrize(
    ("servers", "ports"),
    [
        ("kafka:9092", [9092]),
        ("one:9093, two:9094,three:9093", [9093, 9094]),
        ("[2001:db8::1]:9095", [9095]),
        ("SASL_SSL://one:9096", [9096]),
        ("kafka", [9092]),
    ],
)
def test_pods_reach_names_kafka_and_each_other_and_nothing_else(
    servers: str, ports: list[int]
) -> None:
    values = {"config": {"kafka": {"bootstrap.servers": servers}}}
    assert open_ports(values) == [53, 53, 9464, *ports]
    assert policy(values)["policyTypes"] == ["Ingress", "Egress"]
    own = rendered().stateful_set["spec"]["selector"]["matchLabels"]
    assert policy(values)["egress"][1]["to"] == [{"podSelector": {"matchLabels": own}}]


def test_only_the_admin_port_is_reached_and_only_from_where_it_is_allowed() -> None:
    own, everyone = policy({})["ingress"][0]["from"]
    assert everyone == {"podSelector": {}}
    pods = rendered().stateful_set["spec"]["template"]["metadata"]["labels"]
    assert own["podSelector"]["matchLabels"].items() <= pods.items()
    (closed,) = policy({"networkPolicy": {"adminFrom": []}})["ingress"]
    assert closed == {"from": [own], "ports": [{"protocol": "TCP", "port": 9464}]}


def test_spark_on_kubernetes_is_left_out_of_the_network_policy() -> None:
    def components(values: dict[str, Any]) -> list[str]:
        chosen: list[str] = policy(values)["podSelector"]["matchExpressions"][0]["values"]
        return chosen

    assert components(LOCAL_AUDIT) == ["proxy", "topics", "test", "audit", "audit-follow"]
    assert components(EVERYTHING) == ["proxy", "topics", "test"]


def test_topics_are_created_before_the_pods_where_these_may_not_create_them() -> None:
    release = rendered(TOPICS_BY_THE_HOOK)
    job, settings = release.all("Job")[0], release.one("ConfigMap", f"{NAME}-topics")
    hooks = [one["metadata"]["annotations"] for one in (settings, job)]
    for hook in hooks:
        assert hook["helm.sh/hook"] == "pre-install,pre-upgrade"
        assert "before-hook-creation" in hook["helm.sh/hook-delete-policy"]
    weights = [
        int(one["metadata"]["annotations"]["helm.sh/hook-weight"]) for one in (settings, job)
    ]
    assert weights == sorted(set(weights))
    container = job["spec"]["template"]["spec"]["containers"][0]
    assert [*container["command"], *container["args"][:2]] == [
        "kafka-delay-proxy",
        "topics",
        "create",
    ]
    assert settings["data"] == release.one("ConfigMap")["data"]


@pytest.mark.parametrize(
    "values", [{}, {**TOPICS_BY_THE_HOOK, "topicsJob": {"enabled": False}}], ids=["proxy", "nobody"]
)
def test_there_is_no_hook_where_it_would_not_be_needed(values: dict[str, Any]) -> None:
    assert rendered(values).all("Job") == []


def audit_pod(values: dict[str, Any]) -> dict[str, Any]:
    job = rendered(values).one("CronJob", f"{NAME}-audit")["spec"]["jobTemplate"]["spec"]
    assert job["backoffLimit"] == 0, "an audit with violations would be made again"
    spec: dict[str, Any] = job["template"]["spec"]
    return spec


def called_by(container: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    called: list[str] = []
    monkeypatch.setattr(os, "execve", lambda _program, given, _environment: called.extend(given))
    settings = str(CHART.parents[1] / "proxy" / "config" / "default.yaml")
    with pytest.raises(SystemExit) as ended:
        command([argument.replace(MOUNTED, settings) for argument in container["args"]])
    assert ended.value.code == 0
    return called


@pytest.mark.parametrize("values", [LOCAL_AUDIT, EVERYTHING], ids=["local", "kubernetes"])
def test_the_audit_is_called_as_its_command_line_asks_for(
    values: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    called = called_by(audit_pod(values)["containers"][0], monkeypatch)
    assert called[1:3] == ["-m", "spark_jobs.audit_delivery"]
    audit = values["audit"]
    assert {f"--output={audit.get('output', '/audit/history')}", "--continue"} <= set(called)
    assert {f"--target={target}" for target in audit["targets"]} <= set(called)
    limits = {f"--max-lateness={limit}" for limit in audit.get("maxLateness", ())}
    assert {one for one in called if one.startswith("--max-lateness")} == limits
    assert f"--master={audit.get('spark', {}).get('master', 'local[*]')}" in called


def test_the_audit_that_goes_on_shows_its_metrics_to_prometheus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    release = rendered(FOLLOWING_AUDIT)
    audit = release.one("StatefulSet", f"{NAME}-follow")["spec"]
    container = audit["template"]["spec"]["containers"][0]
    called = called_by(container, monkeypatch)
    assert called[1:3] == ["-m", "spark_jobs.continuous_audit"]
    assert {"--target=orders", "--every=60", "--metrics-host=0.0.0.0"} <= set(called)
    assert f"--metrics-port={container['ports'][0]['containerPort']}" in called
    service = release.one("Service", f"{NAME}-follow")
    labels = audit["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    monitor = release.one("ServiceMonitor", f"{NAME}-follow")["spec"]
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["endpoints"][0]["port"] == service["spec"]["ports"][0]["name"]
    reached = policy(FOLLOWING_AUDIT)["ingress"][0]["ports"]
    assert [port["port"] for port in reached] == [9464, 9465]


def test_the_audit_that_goes_on_finds_its_state_again() -> None:
    audit = rendered(FOLLOWING_AUDIT).one("StatefulSet", f"{NAME}-follow")["spec"]
    container = audit["template"]["spec"]["containers"][0]
    mounts = {one["mountPath"]: one["name"] for one in container["volumeMounts"]}
    assert "--output=/audit/history" in container["args"]
    assert [one["metadata"]["name"] for one in audit["volumeClaimTemplates"]] == [mounts["/audit"]]
    assert audit["replicas"] == 1


def test_the_audit_has_the_image_with_spark() -> None:
    proxy = rendered(LOCAL_AUDIT).container["image"]
    assert audit_pod(LOCAL_AUDIT)["containers"][0]["image"] == f"{proxy}-audit"
    own = {"audit": {"enabled": True, "image": {"repository": "spark", "tag": "4"}}}
    assert audit_pod(own)["containers"][0]["image"] == "spark:4"


def test_results_of_audits_are_kept_in_a_claim_a_named_volume_or_at_a_uri() -> None:
    named: dict[str, Any] = {"persistentVolumeClaim": {"claimName": "audits"}}

    def kept(audit: dict[str, Any]) -> tuple[dict[str, Any], int]:
        values = {"audit": {"enabled": True, **audit}}
        (found,) = (one for one in audit_pod(values)["volumes"] if one.pop("name") == "results")
        return found, len(rendered(values).all("PersistentVolumeClaim"))

    own: dict[str, Any] = {"persistentVolumeClaim": {"claimName": "dp-kafka-delay-proxy-audit"}}
    assert kept({}) == (own, 1)
    assert kept({"volume": named}) == (named, 0)
    assert kept({"output": "s3a://audits/kafka"}) == ({"emptyDir": {}}, 0)


def test_spark_on_kubernetes_may_start_pods_in_its_own_namespace_alone() -> None:
    release = rendered(EVERYTHING)
    binding = release.one("RoleBinding", f"{NAME}-audit")
    account = audit_pod(EVERYTHING)["serviceAccountName"]
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}
    ]
    assert release.all("ClusterRole") == []
    assert rendered(LOCAL_AUDIT).all("Role") == []
    conf = release.one("ConfigMap", f"{NAME}-spark")["data"]["spark-defaults.conf"].splitlines()
    assert f"spark.kubernetes.namespace {NAMESPACE}" in conf
    assert "spark.executor.instances 4" in conf


def notes(values: dict[str, Any]) -> str:
    helm = pytest.importorskip("helm_python")
    with helm.Chart.load(str(CHART)) as chart:
        files = chart.render(values, name=RELEASE, namespace=NAMESPACE)
    return str(files["kafka-delay-proxy/templates/NOTES.txt"])


def test_the_notes_tell_the_first_command_to_try() -> None:
    said = notes({})
    in_pod = f"kubectl -n {NAMESPACE} exec statefulset/{NAME} -- kafka-delay-proxy"
    assert f"{in_pod} send --topic orders --delay 10s --key k1 --value hello" in said
    assert f"{in_pod} check" in said
    assert f"logs {NAME}-0 --previous" in said
    assert f"describe pod {NAME}-0" in said
    assert said.index(f"{in_pod} watch") < said.index(f"{in_pod} send")
    assert f"rollout status statefulset/{NAME}" in said


def test_commands_in_a_pod_know_its_settings_without_being_told() -> None:
    variables = {one["name"]: one.get("value") for one in rendered().container["env"]}
    assert variables["DELAY_PROXY_CONFIG"] == rendered().container["args"][-1]


def test_the_notes_warn_of_a_prometheus_that_is_kept_out() -> None:
    scraped: dict[str, Any] = {"serviceMonitor": {"enabled": True}}
    everyone: dict[str, Any] = {"adminFrom": [{"namespaceSelector": {}}]}
    assert "Prometheus" not in notes({})
    assert "Prometheus" in notes(scraped)
    assert "Prometheus" not in notes({**scraped, "networkPolicy": everyone})
    assert "Prometheus" not in notes({**scraped, "networkPolicy": {"enabled": False}})


def test_the_notes_warn_of_pods_that_would_stay_idle() -> None:
    assert "stay idle" not in notes({})
    assert "stay idle" in notes({"replicas": 5})
