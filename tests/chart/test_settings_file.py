"""The proxy accepts the settings file and the variables that a pod gets."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proxy.cli.app import main as command
from proxy.config.sources import load_settings
from tests.support.chart.chart_sets import EVERYTHING, ONE_REPLICA, TLS_AND_SASL
from tests.support.chart.local_pods import LocalPod, Node
from tests.support.chart.rendering import rendered

pytestmark = pytest.mark.usefixtures("helm")

AUTHORITY = "-----BEGIN CERTIFICATE-----"
SECRETS = {
    "kafka-user": {"username": "proxy", "password": "open sesame"},
    "kafka-tls": {"ca.crt": AUTHORITY, "tls.crt": "", "tls.key": "", "password": "a key's"},
    "admin": {"token": "a token of this length"},
    "admin-tls": {"ca.crt": AUTHORITY, "tls.crt": "", "tls.key": ""},
    "other": {"password": "a store's"},
}
CHECKED: dict[str, dict[str, Any]] = {
    "default": {},
    "one replica": ONE_REPLICA,
    "SASL": {**TLS_AND_SASL, "credentials": {"sasl": {"existingSecret": "kafka-user"}}},
}
"""The client reads certificates at once, so they would have to be real."""


def first_pod(values: dict[str, Any], folder: Path) -> LocalPod:
    release = rendered(values)
    return Node(folder, release.documents, SECRETS).pods(release.stateful_set)[0]


@pytest.fixture
def inside(monkeypatch: pytest.MonkeyPatch) -> Callable[[LocalPod], None]:
    def enter(pod: LocalPod) -> None:
        for name, text in pod.environment.items():
            monkeypatch.setenv(name, text)

    return enter


@pytest.mark.parametrize("chosen", CHECKED)
def test_the_rendered_settings_are_accepted_by_check_offline(
    chosen: str,
    tmp_path: Path,
    inside: Callable[[LocalPod], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    pod = first_pod(CHECKED[chosen], tmp_path)
    inside(pod)
    run = pod.command.index("run")
    with pytest.raises(SystemExit) as ended:
        command(["check", "--offline", "--json", *pod.command[run + 1 :]])
    said = capsys.readouterr()
    assert ended.value.code == 0, said
    assert json.loads(said.out)["stops"] == 0


def test_check_offline_would_refuse_a_settings_file_that_the_proxy_does_not_take(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pod = first_pod({}, tmp_path)
    settings = Path(pod.command[-1])
    settings.write_text(settings.read_text().replace("group_id", "groupid"))
    with pytest.raises(SystemExit) as ended:
        command(["check", "--offline", "--config", str(settings)])
    assert ended.value.code == 1
    assert "`groupid` is not a setting" in capsys.readouterr().err


def test_secrets_and_files_reach_the_settings_by_variables(
    tmp_path: Path, inside: Callable[[LocalPod], None]
) -> None:
    pod = first_pod(EVERYTHING, tmp_path)
    inside(pod)
    settings = load_settings(Path(pod.command[-1]))
    assert settings.kafka["sasl.username"] == "proxy"
    assert settings.kafka["sasl.password"] == "open sesame"
    assert settings.kafka["ssl.key.password"] == "a key's"
    assert settings.kafka["ssl.keystore.password"] == "a store's"
    assert Path(settings.kafka["ssl.ca.location"]).read_text() == AUTHORITY
    assert settings.kafka["security.protocol"] == "SASL_SSL"
    assert settings.admin.token == "a token of this length"
    assert settings.log.level == "debug"


def test_what_the_values_say_is_what_the_proxy_goes_by(
    tmp_path: Path, inside: Callable[[LocalPod], None]
) -> None:
    pod = first_pod(EVERYTHING, tmp_path)
    inside(pod)
    settings = load_settings(Path(pod.command[-1]))
    assert settings.levels_ms == (1_000, 60_000)
    assert settings.roll_after_ms == 3 * 86_400_000
    assert settings.retry.groups["billing"].delays_ms == (10_000, 60_000)
    assert settings.recovery.accept_loss_below == {0: 1200}
    assert settings.targets.deny == ("secret", "other")
    assert settings.workers == 2
    assert not settings.topics.create


def test_every_pod_of_a_stateful_set_is_another_instance_with_its_own_folder(
    tmp_path: Path,
) -> None:
    release = rendered({"replicas": 3})
    pods = Node(tmp_path, release.documents, {}).pods(release.stateful_set)
    instances = [pod.environment["DELAY_PROXY_INSTANCE_ID"] for pod in pods]
    assert instances == [f"dp-kafka-delay-proxy-{number}" for number in range(3)]
    assert len({pod.environment["DELAY_PROXY_DATA_DIR"] for pod in pods}) == 3
