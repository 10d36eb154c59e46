"""Checks of compose.yaml without an engine."""

import json
import re
import shutil
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
    "user",
    "volumes",
}
"""Allowed keys of a service, from the Compose specification. Misspelt keys fail."""
OURS = ("proxy", "audit")
CHART_FILES = "./helm/kafka-delay-proxy/files"
PROMTOOL = shutil.which("promtool")
LISTENER = re.compile(r"(\w+)://([\w.]*):(\d+)")


@pytest.fixture(scope="module")
def compose() -> Any:
    return yaml.safe_load((REPOSITORY / "compose.yaml").read_text("utf-8"))


@pytest.fixture(scope="module")
def services(compose: Any) -> Any:
    return compose["services"]


def _started(services: Any, *profiles: str) -> set[str]:
    """Return the services of `up`. Raise if one needs a service that is left out."""
    started = {name for name, one in services.items() if set(one["profiles"]) & set(profiles)}
    for name in started:
        for other, need in services[name].get("depends_on", {}).items():
            assert other in started or not need.get("required", True), (name, other)
    return started


def test_each_profile_starts_what_it_is_for(services: Any) -> None:
    assert _started(services, "kafka") == {"kafka", "proxy"}
    assert _started(services, "own-kafka") == {"proxy"}
    monitored = {"proxy", "prometheus", "grafana"}
    assert _started(services, "own-kafka", "monitoring") == monitored
    assert _started(services, "kafka", "monitoring") == {"kafka", *monitored}
    assert _started(services, "kafka", "audit") == {"kafka", "proxy", "audit"}


def test_a_command_without_a_profile_has_kafka() -> None:
    lines = (REPOSITORY / ".env").read_text("utf-8").splitlines()
    assert [line for line in lines if not line.startswith("#")] == ["COMPOSE_PROFILES=kafka"]


@pytest.mark.parametrize("page", ["compose.yaml", "docs/release.md"])
def test_the_pages_name_profiles_that_exist(services: Any, page: str) -> None:
    known = {profile for one in services.values() for profile in one["profiles"]}
    named = set(re.findall(r"--profile ([\w-]+)", (REPOSITORY / page).read_text("utf-8")))
    assert {"own-kafka", "monitoring"} <= named <= known


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
    assert re.fullmatch(r"prom/prometheus:v\d+\.\d+\.\d+", services["prometheus"]["image"])
    assert re.fullmatch(r"grafana/grafana:\d+\.\d+\.\d+", services["grafana"]["image"])
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
    assert all(one["read_only"] for name, one in services.items() if name != "kafka")


def test_compose_opens_ports_to_this_machine_only(services: Any) -> None:
    ports = [port for one in services.values() for port in one.get("ports", [])]
    assert ports == [f"127.0.0.1:{port}:{port}" for port in (9092, 9464, 9090, 3000)]


def test_compose_starts_each_service_when_what_it_needs_is_healthy(services: Any) -> None:
    needs_kafka = {"condition": "service_healthy", "required": False}
    assert services["proxy"]["depends_on"] == {"kafka": needs_kafka}
    assert services["prometheus"]["depends_on"] == {"proxy": {"condition": "service_healthy"}}
    assert services["grafana"]["depends_on"] == {"prometheus": {"condition": "service_healthy"}}
    assert services["audit"]["depends_on"] == {"proxy": {"condition": "service_healthy"}}
    assert services["proxy"]["healthcheck"]["test"][-2:] == ["/opt/healthy.py", "/readyz"]


def test_compose_keeps_in_volumes_what_is_to_last(compose: Any, services: Any) -> None:
    mounted = {services[name]["volumes"][0] for name in ("kafka", *OURS)}
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
    by_default = f"${{KAFKA:-{told['INSIDE']}}}"
    assert services["proxy"]["environment"]["DELAY_PROXY_KAFKA__BOOTSTRAP_SERVERS"] == by_default
    assert by_default in services["audit"]["command"]
    assert {name: address.split(":")[1] for name, address in told.items()} == {
        name: port for name, port in bound.items() if name != "CONTROLLER"
    }


def _mounted(service: Any) -> dict[str, Path]:
    """Return the files of this repository by their place in the container."""
    parts = [text.split(":") for text in service["volumes"] if text.startswith("./")]
    assert all(mode == "ro" for _, _, mode in parts)
    return {inside: REPOSITORY / source for source, inside, _ in parts}


def test_prometheus_asks_the_proxy_with_its_token_and_loads_the_chart_s_alerts(
    services: Any,
) -> None:
    prometheus, proxy = services["prometheus"], services["proxy"]
    files = _mounted(prometheus)
    (named,) = (Path(word[14:]) for word in prometheus["command"] if "--config.file=" in word)
    config = yaml.safe_load(files[str(named)].read_text("utf-8"))
    rules = [files[str(named.parent / name)] for name in config["rule_files"]]
    assert rules == [REPOSITORY / CHART_FILES / "alerts.yaml"]
    (job,) = config["scrape_configs"]
    assert job["static_configs"] == [{"targets": ["proxy:9464"]}]
    token = Path(job["authorization"]["credentials_file"])
    assert f"proxy:{token.parent}:ro" in prometheus["volumes"]
    assert f"/data/{token.name}" in proxy["command"][0]
    dockerfile = (REPOSITORY / "Dockerfile").read_text("utf-8")
    assert f"USER {prometheus['user']}\n" in dockerfile


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")
def test_promtool_accepts_the_settings_of_prometheus(services: Any, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("a-token")
    for inside, file in _mounted(services["prometheus"]).items():
        text = file.read_text("utf-8").replace("/run/delay-proxy/admin-token", str(token))
        (tmp_path / Path(inside).name).write_text(text, "utf-8")
    checked = subprocess.run(
        [str(PROMTOOL), "check", "config", str(tmp_path / "prometheus.yml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_grafana_finds_prometheus_and_opens_the_chart_s_dashboard(services: Any) -> None:
    grafana = services["grafana"]
    files = _mounted(grafana)
    home = grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert files[home] == REPOSITORY / CHART_FILES / "dashboard.json"
    provisioned = {
        Path(inside).parent.name: yaml.safe_load(file.read_text("utf-8"))
        for inside, file in files.items()
        if inside.startswith("/etc/grafana/provisioning/")
    }
    (source,) = provisioned["datasources"]["datasources"]
    assert (source["type"], source["url"]) == ("prometheus", "http://prometheus:9090")
    assert source["isDefault"]
    (provider,) = provisioned["dashboards"]["providers"]
    assert (provider["type"], provider["options"]["path"]) == ("file", str(Path(home).parent))
    variables = json.loads(files[home].read_text("utf-8"))["templating"]["list"]
    (chosen,) = (one for one in variables if one["type"] == "datasource")
    assert chosen["query"] == source["type"]
