"""Checks of compose.yaml without an engine."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import proxy
from proxy.config.sources import known_paths, variable_name
from tests.support.distributions import REPOSITORY
from tools.image.dockerfile import stages

KNOWN = {
    "build",
    "cap_drop",
    "command",
    "depends_on",
    "entrypoint",
    "environment",
    "healthcheck",
    "hostname",
    "image",
    "ports",
    "profiles",
    "read_only",
    "restart",
    "security_opt",
    "stop_grace_period",
    "tmpfs",
    "volumes",
}
"""Allowed keys of a service, from the Compose specification. Misspelt keys fail."""
OURS = ("proxy", "audit")
LISTENER = re.compile(r"(\w+)://([\w.]*):(\d+)")


@pytest.fixture(scope="module")
def compose() -> Any:
    return yaml.safe_load((REPOSITORY / "compose.yaml").read_text("utf-8"))


@pytest.fixture(scope="module")
def services(compose: Any) -> Any:
    return compose["services"]


def test_compose_has_kafka_the_proxy_and_on_request_the_audit(services: Any) -> None:
    assert list(services) == ["kafka", "proxy", "audit"]
    assert [name for name, one in services.items() if "profiles" in one] == ["audit"]


def test_compose_uses_only_keys_the_specification_knows(compose: Any, services: Any) -> None:
    assert set(compose) == {"name", "services", "volumes"}
    assert {key for one in services.values() for key in one} <= KNOWN
    checks = [one["healthcheck"] for one in services.values() if "healthcheck" in one]
    assert {key for check in checks for key in check} == {
        *("test", "interval", "timeout", "retries", "start_period")
    }


def test_compose_pins_every_image(services: Any) -> None:
    assert services["kafka"]["image"].startswith("apache/kafka:")
    assert services["proxy"]["image"] == f"kafka-delay-proxy:{proxy.__version__}"
    assert services["audit"]["image"] == f"kafka-delay-proxy:{proxy.__version__}-audit"
    assert not [one for one in services.values() if re.fullmatch(r"[^:]+(:latest)?", one["image"])]


def test_compose_runs_the_kafka_that_the_tests_run(services: Any) -> None:
    locked = (REPOSITORY / "proxy/embedded/kafka-jars.lock").read_text("utf-8")
    version = services["kafka"]["image"].partition(":")[2]
    assert f"org.apache.kafka:kafka_2.13:{version} " in locked


def test_compose_builds_targets_the_dockerfile_has(services: Any) -> None:
    known = stages((REPOSITORY / "Dockerfile").read_text("utf-8"))
    for name in OURS:
        assert services[name]["build"] == {"context": ".", "target": name}
        assert name in known


def test_compose_gives_no_service_rights_it_does_not_need(services: Any) -> None:
    for one in services.values():
        assert one["cap_drop"] == ["ALL"]
        assert one["security_opt"] == ["no-new-privileges:true"]
    assert all(services[name]["read_only"] for name in OURS)


def test_compose_opens_ports_to_this_machine_only(services: Any) -> None:
    ports = [port for one in services.values() for port in one.get("ports", [])]
    assert ports == ["127.0.0.1:9092:9092", "127.0.0.1:9464:9464"]


def test_compose_starts_each_service_when_what_it_needs_is_healthy(services: Any) -> None:
    assert services["proxy"]["depends_on"] == {"kafka": {"condition": "service_healthy"}}
    assert services["audit"]["depends_on"] == {"proxy": {"condition": "service_healthy"}}
    assert services["proxy"]["healthcheck"]["test"][-2:] == ["/opt/healthy.py", "/readyz"]


def test_compose_keeps_in_volumes_what_is_to_last(compose: Any, services: Any) -> None:
    mounted = {one["volumes"][0] for one in services.values()}
    assert mounted == {"kafka:/var/lib/kafka/data", "proxy:/data", "audits:/data"}
    assert set(compose["volumes"]) == {"kafka", "proxy", "audits"}
    assert services["kafka"]["environment"]["KAFKA_LOG_DIRS"] == "/var/lib/kafka/data"


def test_compose_names_settings_the_proxy_knows(services: Any) -> None:
    known = {variable_name(path) for path in known_paths()}
    named = set(services["proxy"]["environment"])
    assert {name for name in named if not name.startswith("DELAY_PROXY_KAFKA__")} <= known


def test_compose_makes_a_token_once_and_gives_it_to_the_proxy(
    services: Any, tmp_path: Path
) -> None:
    proxy = services["proxy"]
    (script,) = proxy["command"]
    (tmp_path / "python").symlink_to(sys.executable)
    command = tmp_path / "kafka-delay-proxy"
    command.write_text('#!/bin/sh\necho "$DELAY_PROXY_ADMIN__TOKEN" "$@"\n')
    command.chmod(0o755)
    here = script.replace("$$", "$").replace("/data/", f"{tmp_path}/")
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    said = [
        subprocess.run(
            [*proxy["entrypoint"], here],
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for _ in range(2)
    ]
    kept = tmp_path / "admin-token"
    assert (
        said == [f"{kept.read_text().strip()} run --config /etc/kafka-delay-proxy/proxy.yaml\n"] * 2
    )
    assert len(kept.read_text()) > 40
    assert kept.stat().st_mode & 0o077 == 0


def test_instance_id_follows_a_host_name_that_stays(services: Any) -> None:
    assert services["proxy"]["hostname"] == "proxy"


def test_compose_tells_clients_of_kafka_an_address_they_can_reach(services: Any) -> None:
    environment = services["kafka"]["environment"]
    told = {
        name: f"{host}:{port}"
        for name, host, port in LISTENER.findall(environment["KAFKA_ADVERTISED_LISTENERS"])
    }
    bound = {name: port for name, _, port in LISTENER.findall(environment["KAFKA_LISTENERS"])}
    assert told == {"HOST": "localhost:9092", "INSIDE": "kafka:29092"}
    assert (
        told["INSIDE"] == services["proxy"]["environment"]["DELAY_PROXY_KAFKA__BOOTSTRAP_SERVERS"]
    )
    assert told["INSIDE"] in services["audit"]["command"]
    assert {name: address.split(":")[1] for name, address in told.items()} == {
        name: port for name, port in bound.items() if name != "CONTROLLER"
    }
