"""Secrets are references: no rendered object contains a secret value."""

from __future__ import annotations

import shutil
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from proxy.config.settings import Settings
from tests.support.chart.chart_files import CHART
from tests.support.chart.chart_sets import EVERYTHING, GATEWAY, ONE_REPLICA, SETS, TLS_AND_SASL
from tests.support.chart.rendering import NAME, Document, refusal, rendered

pytestmark = pytest.mark.usefixtures("helm")

PASSWORD = "correct-horse-battery-staple"


def variables(container: Document) -> dict[str, Any]:
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in container["env"]}


def from_secret(name: str, key: str) -> dict[str, Any]:
    return {"secretKeyRef": {"name": name, "key": key}}


@pytest.mark.parametrize(
    "name",
    [
        "sasl.password",
        "ssl.key.password",
        "ssl.keystore.password",
        "ssl.key.pem",
        "sasl.oauthbearer.client.secret",
    ],
)
def test_a_secret_never_appears_in_the_config_map(name: str) -> None:
    said = refusal({"config": {"kafka": {name: PASSWORD}}})
    assert f'config.kafka."{name}" is a secret' in said
    assert f"DELAY_PROXY_KAFKA__{name.replace('.', '_').upper()}" in said
    assert PASSWORD not in said


@pytest.mark.parametrize("name", ["DELAY_PROXY_KAFKA__SASL_PASSWORD", "delay_proxy_admin__token"])
def test_a_secret_is_not_taken_as_the_text_of_a_variable(name: str) -> None:
    said = refusal({"extraEnv": [{"name": name, "value": PASSWORD}]})
    assert "`valueFrom`" in said
    assert PASSWORD not in said


def test_the_token_of_the_admin_port_is_refused_in_the_settings() -> None:
    assert PASSWORD not in refusal({"config": {"admin": {"token": PASSWORD}}})


def test_user_and_password_come_from_their_secret() -> None:
    found = variables(rendered(TLS_AND_SASL).container)
    assert found["DELAY_PROXY_KAFKA__SASL_USERNAME"] == from_secret("kafka-user", "username")
    assert found["DELAY_PROXY_KAFKA__SASL_PASSWORD"] == from_secret("kafka-user", "password")
    assert found["DELAY_PROXY_ADMIN__TOKEN"] == from_secret("admin", "token")
    assert found["DELAY_PROXY_KAFKA__SSL_KEY_PASSWORD"] == from_secret("kafka-tls", "password")


def test_certificates_are_mounted_where_the_client_looks_for_them() -> None:
    release = rendered(TLS_AND_SASL)
    found = variables(release.container)
    mounted = {one["name"]: one for one in release.container["volumeMounts"]}["tls"]
    volume = {one["name"]: one for one in release.pod["volumes"]}["tls"]["secret"]
    files = {f"{mounted['mountPath']}/{item['path']}" for item in volume["items"]}
    named = {
        found[f"DELAY_PROXY_KAFKA__SSL_{what}_LOCATION"] for what in ("CA", "CERTIFICATE", "KEY")
    }
    assert named == files
    assert mounted["readOnly"]


def test_with_a_certificate_probes_and_prometheus_use_https() -> None:
    release = rendered({**TLS_AND_SASL, "serviceMonitor": {"enabled": True}})
    found = variables(release.container)
    mounted = {one["name"]: one for one in release.container["volumeMounts"]}["admin-tls"]
    assert found["DELAY_PROXY_ADMIN__TLS__CERTIFICATE"] == f"{mounted['mountPath']}/tls.crt"
    assert found["DELAY_PROXY_ADMIN__TLS__KEY"] == f"{mounted['mountPath']}/tls.key"
    probes = [release.container[f"{name}Probe"] for name in ("startup", "liveness", "readiness")]
    assert {one["httpGet"]["scheme"] for one in probes} == {"HTTPS"}
    endpoint = release.one("ServiceMonitor")["spec"]["endpoints"][0]
    assert endpoint["scheme"] == "https"
    assert endpoint["tlsConfig"]["ca"] == {"secret": {"name": "admin-tls", "key": "ca.crt"}}
    assert rendered().container["livenessProbe"]["httpGet"]["scheme"] == "HTTP"
    own = {"certificate": "/certificates/a.pem", "key": "/certificates/a.key"}
    mounted_otherwise = rendered({"config": {"admin": {"tls": own}}}).container
    assert mounted_otherwise["livenessProbe"]["httpGet"]["scheme"] == "HTTPS"


def test_without_credentials_no_secret_is_asked_for() -> None:
    assert "secret" not in rendered().text.lower().replace("secrets come as", "")


def test_the_hook_may_have_a_user_of_its_own() -> None:
    release = rendered({**EVERYTHING, "topicsJob": {"saslSecret": "topics-user"}})
    job = release.one("Job", "dp-kafka-delay-proxy-topics")
    found = variables(job["spec"]["template"]["spec"]["containers"][0])
    assert found["DELAY_PROXY_KAFKA__SASL_PASSWORD"] == from_secret("topics-user", "password")
    assert "DELAY_PROXY_ADMIN__TOKEN" not in found


def test_the_audits_may_have_a_user_of_their_own() -> None:
    release = rendered({**EVERYTHING, "audit": {**EVERYTHING["audit"], "saslSecret": "auditor"}})
    job = release.one("CronJob", f"{NAME}-audit")["spec"]["jobTemplate"]["spec"]
    found = variables(job["template"]["spec"]["containers"][0])
    assert found["DELAY_PROXY_KAFKA__SASL_PASSWORD"] == from_secret("auditor", "password")
    assert variables(release.container)["DELAY_PROXY_KAFKA__SASL_PASSWORD"] != from_secret(
        "auditor", "password"
    )


def test_prometheus_gets_the_token_that_metrics_ask_for() -> None:
    with_token = rendered({**TLS_AND_SASL, "serviceMonitor": {"enabled": True}})
    endpoint = with_token.one("ServiceMonitor")["spec"]["endpoints"][0]
    assert endpoint["authorization"]["credentials"] == {"name": "admin", "key": "token"}
    without = rendered({"serviceMonitor": {"enabled": True}}).one("ServiceMonitor")
    assert "authorization" not in without["spec"]["endpoints"][0]


def test_tokens_with_roles_lie_where_the_settings_look_for_them() -> None:
    release = rendered(GATEWAY)
    tokens = Settings.model_validate(release.settings).admin.tokens
    assert {name: one.role for name, one in tokens.items()} == {
        "prometheus": "metrics",
        "support": "viewer",
    }
    assert tokens["support"].contents
    (volume,) = (one["projected"] for one in release.pod["volumes"] if one["name"] == "tokens")
    (mount,) = (one for one in release.container["volumeMounts"] if one["name"] == "tokens")
    keys = {
        f"{mount['mountPath']}/{item['path']}": (source["secret"]["name"], item["key"])
        for source in volume["sources"]
        for item in source["secret"]["items"]
    }
    assert keys == {
        str(tokens["prometheus"].file): ("scraper", "token"),
        str(tokens["support"].file): ("people", "support"),
    }
    others = [pod for kind, pod in release.pod_specs() if kind != "StatefulSet"]
    assert all("tokens" not in str(pod.get("volumes")) for pod in others)


@pytest.mark.parametrize(
    ("credentials", "secret"),
    [
        ({"adminToken": {"existingSecret": "admin"}}, "admin"),
        (GATEWAY["credentials"], "scraper"),
        ({"adminTokens": {"me": {"role": "viewer", "existingSecret": "people"}}}, None),
    ],
)
def test_the_test_uses_the_least_token_that_reads_metrics(
    credentials: dict[str, Any], secret: str | None
) -> None:
    (container,) = rendered({"credentials": credentials}).one("Pod", f"{NAME}-test")["spec"][
        "containers"
    ]
    asked = [one["valueFrom"]["secretKeyRef"]["name"] for one in container.get("env", [])]
    assert asked == ([secret] if secret else [])


@pytest.mark.parametrize("name", ["sasl", "tls"])
def test_credentials_that_the_connection_would_not_use_are_refused(name: str) -> None:
    assert "security.protocol" in refusal({"credentials": {name: {"existingSecret": "some"}}})


def test_a_login_without_its_mechanism_is_refused() -> None:
    kafka = {"bootstrap.servers": "kafka:9093", "security.protocol": "SASL_SSL"}
    assert "sasl.mechanism" in refusal({"config": {"kafka": kafka}})


def test_a_token_is_made_where_it_is_wanted_and_no_secret_is_named() -> None:
    release = rendered({**ONE_REPLICA, "credentials": {"adminToken": {"create": True}}})
    (secret,) = (one for one in release.documents if one["kind"] == "Secret")
    name = secret["metadata"]["name"]
    assert len(b64decode(secret["data"]["token"])) == 40
    found = variables(release.container)
    assert found["DELAY_PROXY_ADMIN__TOKEN"] == from_secret(name, "token")


@pytest.mark.parametrize("token", [{"existingSecret": "admin", "create": True}, {}])
def test_no_token_is_made_where_one_is_named_or_none_is_wanted(token: dict[str, Any]) -> None:
    release = rendered({"credentials": {"adminToken": token}})
    assert not [one for one in release.documents if one["kind"] == "Secret"]
    assert ("DELAY_PROXY_ADMIN__TOKEN" in variables(release.container)) == bool(token)


@pytest.mark.parametrize("chosen", sorted(set(SETS) - {"gateway and pod monitor"}))
def test_gitops_renders_the_same_text_twice(chosen: str, tmp_path: Path) -> None:
    copy = tmp_path / CHART.name
    shutil.copytree(CHART, copy)
    assert rendered(SETS[chosen]).text == rendered(SETS[chosen], copy).text


def test_only_a_token_of_the_chart_differs_each_time(tmp_path: Path) -> None:
    """Otherwise the test above could not fail."""
    copy = tmp_path / CHART.name
    shutil.copytree(CHART, copy)
    made = {"credentials": {"adminToken": {"create": True}}}
    one, other = rendered(made).documents, rendered(made, copy).documents
    different = [a["kind"] for a, b in zip(one, other, strict=True) if a != b]
    assert different == ["Secret"]
