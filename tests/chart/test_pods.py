"""Pods have stable names and volumes, probes, a grace period and no privileges."""

from __future__ import annotations

import time
from typing import Any

import pytest
import yaml

from proxy.admin.app import AdminApp
from proxy.config.settings import AdminSettings
from proxy.kafka.client_settings import TUNED_PRODUCER
from proxy.telemetry.status import Status
from proxy.worker.run import STOP_WITHIN_S
from tests.support.chart.chart_files import CHART
from tests.support.chart.chart_sets import (
    EVERYTHING,
    FOLLOWING_AUDIT,
    LOCAL_AUDIT,
    ONE_REPLICA,
    TOPICS_BY_THE_HOOK,
)
from tests.support.chart.rendering import NAME, refusal, rendered
from tests.support.simulation.admin_api import MadeUpApi
from tests.support.simulation.admin_exchange import exchange

pytestmark = pytest.mark.usefixtures("helm")

IMAGES_USER = 65_532


def test_with_two_replicas_every_pod_has_its_own_volume() -> None:
    spec = rendered({"replicas": 2}).stateful_set["spec"]
    assert spec["replicas"] == 2
    claims = [claim["metadata"]["name"] for claim in spec["volumeClaimTemplates"]]
    pod = spec["template"]["spec"]
    mounts = {one["mountPath"]: one["name"] for one in pod["containers"][0]["volumeMounts"]}
    assert claims == [mounts["/data"]]
    assert mounts["/data"] not in {volume["name"] for volume in pod["volumes"]}


def test_the_schedule_lies_on_the_volume() -> None:
    release = rendered({"config": {"data_dir": "/var/delays"}})
    mounts = {one["name"]: one["mountPath"] for one in release.container["volumeMounts"]}
    assert release.settings["data_dir"] == mounts["data"] == "/var/delays"


def test_without_a_volume_of_its_own_a_pod_has_a_folder_for_its_life() -> None:
    release = rendered(ONE_REPLICA)
    assert "volumeClaimTemplates" not in release.stateful_set["spec"]
    assert {"name": "data", "emptyDir": {}} in release.pod["volumes"]


def test_every_pod_is_known_by_its_stable_name() -> None:
    variables = {one["name"]: one for one in rendered().container["env"]}
    source = variables["DELAY_PROXY_INSTANCE_ID"]["valueFrom"]
    assert source == {"fieldRef": {"fieldPath": "metadata.name"}}
    assert rendered().settings.get("instance_id") is None, "Helm 3 writes null, Helm 4 nothing"


def test_pods_start_side_by_side() -> None:
    assert rendered().stateful_set["spec"]["podManagementPolicy"] == "Parallel"


@pytest.mark.parametrize(
    ("probe", "path"),
    [("startupProbe", "/healthz"), ("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")],
)
def test_probes_ask_for_pages_that_the_proxy_has(probe: str, path: str) -> None:
    asked = rendered().container[probe]["httpGet"]
    assert asked == {"path": path, "port": "admin", "scheme": "HTTP"}
    status = Status(heartbeat_monotonic=time.monotonic(), assigned=True)
    site = MadeUpApi(AdminSettings(token="a token of enough characters")).site
    site.read_statuses = lambda: [status]
    assert exchange(AdminApp(site), "GET", path, {})[0] == 200


def test_probes_and_services_reach_the_port_of_the_settings() -> None:
    release = rendered({"config": {"admin": {"port": 9999}}})
    assert release.container["ports"] == [{"name": "admin", "containerPort": 9999}]
    assert release.settings["admin"]["port"] == 9999
    assert release.settings["admin"]["host"] == "0.0.0.0"  # noqa: S104
    for service in release.all("Service"):
        assert service["spec"]["ports"][0]["port"] == 9999
        assert service["spec"]["ports"][0]["targetPort"] == "admin"


def test_a_pod_has_more_time_to_end_than_a_transaction_may_take() -> None:
    grace_s = rendered().pod["terminationGracePeriodSeconds"]
    assert grace_s * 1000 > TUNED_PRODUCER["transaction.timeout.ms"]
    assert grace_s > STOP_WITHIN_S


@pytest.mark.parametrize("timeout_ms", [60_000, "90000"])
def test_a_transaction_longer_than_the_time_to_end_is_refused(timeout_ms: object) -> None:
    longer = {"config": {"kafka": {"transaction.timeout.ms": timeout_ms}}}
    assert "terminationGracePeriodSeconds (60) must be longer" in refusal(longer)
    rendered({**longer, "terminationGracePeriodSeconds": 120})


def test_a_pod_that_hangs_at_its_start_has_minutes_before_it_is_given_up() -> None:
    probe = rendered().container["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] >= 300


@pytest.mark.parametrize(
    "values",
    [{}, EVERYTHING, LOCAL_AUDIT, FOLLOWING_AUDIT, TOPICS_BY_THE_HOOK],
    ids=["default", "everything", "audit", "audit that goes on", "hook"],
)
def test_no_pod_has_any_privilege(values: dict[str, Any]) -> None:
    for _, pod in rendered(values).pod_specs():
        security = pod["securityContext"]
        assert security["runAsNonRoot"]
        assert security["runAsUser"] == security["fsGroup"] == IMAGES_USER
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "privileged": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }


def test_every_pod_can_write_temporary_files_and_says_what_it_may_use() -> None:
    """The pod of the test writes nothing."""
    for kind, pod in rendered(EVERYTHING).pod_specs():
        if kind == "Pod":
            continue
        assert {"name": "tmp", "emptyDir": {}} in pod["volumes"]
        for container in pod["containers"][:1]:
            assert {"name": "tmp", "mountPath": "/tmp"} in container["volumeMounts"]  # noqa: S108
            assert "memory" in container["resources"]["limits"]


def with_a_token(values: dict[str, Any]) -> set[str]:
    specs = [pod for _, pod in rendered(values).pod_specs() if pod["automountServiceAccountToken"]]
    return {container["name"] for pod in specs for container in pod["containers"]}


def test_no_pod_gets_a_token_for_kubernetes_but_the_one_that_starts_executors() -> None:
    assert with_a_token(EVERYTHING) == {"audit"}
    assert with_a_token(LOCAL_AUDIT) == with_a_token(FOLLOWING_AUDIT) == set()
    for account in rendered(EVERYTHING).all("ServiceAccount"):
        assert account["automountServiceAccountToken"] is False


def test_a_change_of_the_settings_restarts_the_pods_and_nothing_else_does() -> None:
    def checksum(values: dict[str, Any]) -> str:
        template = rendered(values).stateful_set["spec"]["template"]
        return str(template["metadata"]["annotations"]["checksum/config"])

    assert checksum({}) == checksum({"replicas": 5, "audit": {"enabled": True}})
    assert checksum({}) != checksum({"config": {"max_delay": "7d"}})


def test_a_change_of_sparks_settings_restarts_the_audit_that_goes_on() -> None:
    def annotations(conf: dict[str, str]) -> object:
        audit = {**FOLLOWING_AUDIT["audit"], "spark": {"conf": conf}}
        pods = rendered({"audit": audit}).one("StatefulSet", f"{NAME}-follow")
        return pods["spec"]["template"]["metadata"]["annotations"]

    assert annotations({}) == annotations({})
    assert annotations({}) != annotations({"spark.driver.maxResultSize": "2g"})


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_an_admin_port_that_the_kubelet_cannot_reach_is_refused(host: str) -> None:
    assert "restarted for ever" in refusal({"config": {"admin": {"host": host}}})


def test_several_workers_need_more_time_to_end_than_one() -> None:
    short: dict[str, Any] = {"terminationGracePeriodSeconds": 20}
    assert rendered(short).pod["terminationGracePeriodSeconds"] == 20
    assert "several workers" in refusal({**short, "config": {"workers": 4}})


@pytest.mark.parametrize("folder", ["/tmp", "/tmp/data", "/etc/kafka-delay-proxy"])  # noqa: S108
def test_a_data_folder_where_something_else_is_mounted_is_refused(folder: str) -> None:
    assert "Leave it at /data" in refusal({"config": {"data_dir": folder}})


@pytest.mark.parametrize("workers", ["many", 0])
def test_the_workers_of_a_pod_are_a_number_or_auto(workers: object) -> None:
    assert "workers" in refusal({"config": {"workers": workers}})


def test_workers_auto_needs_a_limit_of_cores_and_time_to_end() -> None:
    limited: dict[str, Any] = {"resources": {"limits": {"cpu": "4"}}, "config": {"workers": "auto"}}
    assert rendered(limited).settings["workers"] == "auto"
    assert "Set resources.limits.cpu" in refusal({"config": {"workers": "auto"}})
    assert "several workers" in refusal({**limited, "terminationGracePeriodSeconds": 20})


def test_pods_are_spread_over_hosts_unless_told_otherwise() -> None:
    spread = rendered().pod["topologySpreadConstraints"]
    assert [one["topologyKey"] for one in spread] == ["kubernetes.io/hostname"]
    assert [
        one["topologyKey"] for one in rendered(EVERYTHING).pod["topologySpreadConstraints"]
    ] == ["zone"]


def test_an_image_is_named_by_its_digest_or_else_by_its_tag() -> None:
    version = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))["appVersion"]
    assert rendered().container["image"] == f"kafka-delay-proxy:{version}"
    mine = {"image": {"repository": "registry:5000/proxy", "tag": "1.2"}}
    assert rendered(mine).container["image"] == "registry:5000/proxy:1.2"
    digest = "sha256:" + "ab" * 32
    pinned = {"image": {"digest": digest, "tag": "1.2"}}
    assert rendered(pinned).container["image"] == f"kafka-delay-proxy@{digest}"


def test_variables_of_services_in_the_namespace_do_not_come_into_the_pods() -> None:
    assert all(pod["enableServiceLinks"] is False for _, pod in rendered(EVERYTHING).pod_specs())
