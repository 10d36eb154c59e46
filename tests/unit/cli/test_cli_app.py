"""The command line: exit codes and sentences, and never a traceback."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from proxy import __version__
from proxy.admin.server import AdminServer
from proxy.cli import terminal
from proxy.cli.trial import invitation
from proxy.config.settings import AdminSettings, TopicSettings
from proxy.kafka.access import Connection
from tests.support.installation.proxy_process import REPOSITORY
from tests.support.simulation.admin_api import MadeUpApi

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def _no_settings_around(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Connection, "limit_s", 0.5)
    for name in list(os.environ):
        if name.upper().startswith("DELAY_PROXY_"):
            monkeypatch.delenv(name)


def test_a_wrong_setting_is_one_sentence_and_exit_code_1(call: Call, tmp_path: Path) -> None:
    (tmp_path / "proxy.yaml").write_text("grup_id: x\n")
    code, out, err = call("check", "--offline", "--config", "proxy.yaml")
    assert (code, out) == (1, "")
    assert err == (
        "Error: proxy.yaml line 1: `grup_id` is not a setting. The nearest "
        "known key is `group_id`.\n"
    )


def test_the_settings_file_can_be_named_by_a_variable(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "proxy.yaml").write_text("grup_id: x\n")
    monkeypatch.setenv("DELAY_PROXY_CONFIG", "proxy.yaml")
    assert call("check", "--offline")[0] == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("send",),
        ("send", "--topic", "t", "--delay", "soon"),
        ("send", "--topic", "t", "--delay", "1s", "--level", "2"),
        ("send", "--topic", "t", "--level", "-1"),
        ("send", "--topic", "t", "--id", ""),
        ("send", "--topic", "t", "--prepare"),
        ("send", "--retry-group", "g", "--attempt", "-1"),
        ("cancel",),
        ("cancel", ""),
        ("cancel", "x" * 257),
        ("cancel", "x", "--wait", "long"),
        ("recall",),
        ("recall", "17"),
        ("recall", "timer.ingress/0/x"),
        ("recall", "timer.ingress/0/017"),
        ("recall", "orders/0/17"),
        ("recall", "timer.ingress/0/17", "--wait", "long"),
        ("commit", "x", "--partition", "-1"),
        ("broker", "--port", "70000"),
        ("watch", "t", "--count", "0"),
        ("reschedule", "timer.ingress/0/17", "--delay", "30"),
        ("dead-letters", "replay", "--reason", "none-such", "--yes"),
        ("dead-letters", "replay", "--from", "2h", "--to", "3h", "--yes"),
        ("trace", "timer.ingress"),
        ("trace", "timer.ingress/0/0", "--retries-within", "long"),
    ],
)
def test_wrong_use_is_exit_code_2(call: Call, arguments: tuple[str, ...]) -> None:
    code, out, err = call(*arguments)
    assert (code, out) == (2, "")
    assert "Usage:" in err


@pytest.mark.parametrize(
    "arguments",
    [
        ("send", "--topic", "t"),
        ("cancel", "x"),
        ("recall", "timer.ingress/0/17"),
        ("commit", "x"),
        ("rollback", "x"),
        ("trace", "timer.ingress/0/0"),
    ],
)
def test_a_broker_that_is_not_there_is_one_sentence(call: Call, arguments: tuple[str, ...]) -> None:
    code, out, err = call(*arguments, "--bootstrap", "127.0.0.1:1")
    assert (code, out) == (1, "")
    assert err.startswith("Error: No Kafka broker answers at 127.0.0.1:1:")
    assert err.count("\n") == 1


def test_a_defect_is_told_as_one_and_shows_where_when_asked(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("by nobody")

    monkeypatch.setattr(terminal, "load_settings", broken)
    code, _, err = call("run")
    assert code == 1
    assert "a defect of kafka-delay-proxy. Please report it: ZeroDivisionError: by nobody" in err
    assert "Traceback" not in err
    monkeypatch.setenv("DELAY_PROXY_LOG__LEVEL", "debug")
    assert "Traceback" in call("run")[2]


def test_check_offline_judges_the_settings_alone(call: Call) -> None:
    code, out, _ = call("check", "--offline", "--json")
    said = json.loads(out)
    assert (code, said["stops"]) == (0, 0)
    assert {finding["subject"] for finding in said["findings"]} >= {"settings", "kafka", "data_dir"}


def test_check_offline_finds_what_librdkafka_does_not_know(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DELAY_PROXY_KAFKA__SASL_PASWORD", "x")
    code, out, _ = call("check", "--offline")
    assert code == 1
    assert 'No such configuration property: "sasl.pasword"' in out
    assert "1 of these problems would stop the proxy." in out


def test_check_offline_finds_a_data_folder_that_is_a_file(call: Call, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    code, out, _ = call("check", "--offline")
    assert code == 1
    assert "cannot be written" in out


def test_check_without_a_broker_says_so_and_ends_with_1(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DELAY_PROXY_KAFKA__BOOTSTRAP_SERVERS", "127.0.0.1:1")
    code, out, _ = call("check", "--json")
    (stop,) = (f for f in json.loads(out)["findings"] if f["verdict"] == "stop")
    assert (code, stop["subject"]) == (1, "broker")


def test_pending_without_a_proxy_is_one_sentence(call: Call) -> None:
    code, _, err = call("pending", "--admin", "127.0.0.1:1")
    assert code == 1
    assert err.startswith("Error: No proxy answers at http://127.0.0.1:1:")


def test_pending_without_the_token_says_which_setting(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = MadeUpApi(AdminSettings(port=0, token="a-token-nobody-guesses"))
    server = AdminServer(made.site)
    with closing(server):
        address = f"127.0.0.1:{server.port}"
        assert "Set `admin: token`" in call("pending", "--admin", address)[2]
        monkeypatch.setenv("DELAY_PROXY_ADMIN__TOKEN", "a-token-nobody-guesses")
        monkeypatch.setenv("DELAY_PROXY_KAFKA__BOOTSTRAP.SERVERS", "127.0.0.1:1")
        assert call("pending", "--admin", address)[0] == 0


def test_the_invitation_names_the_port_only_where_it_is_not_the_usual() -> None:
    assert "--bootstrap" not in invitation("kafka-delay-proxy", 9092, 9464, TopicSettings())
    elsewhere = invitation("x", 19092, 9464, TopicSettings())
    assert "watch orders --bootstrap 127.0.0.1:19092" in elsewhere
    assert "cancel o1 --bootstrap 127.0.0.1:19092" in elsewhere


def test_help_and_version_answer(call: Call) -> None:
    assert "dev" in call("--help")[1]
    assert call("--version")[1].strip() == __version__


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_for_completion_is_printed_for_every_shell(
    call: Call, monkeypatch: pytest.MonkeyPatch, shell: str
) -> None:
    monkeypatch.setenv("_KAFKA_DELAY_PROXY_COMPLETE", f"source_{shell}")
    code, out, _ = call()
    assert (code, "_KAFKA_DELAY_PROXY_COMPLETE" in out) == (0, True)


def test_commands_are_completed_as_they_are_typed(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_KAFKA_DELAY_PROXY_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "kafka-delay-proxy dead")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert call()[1].split() == ["dead-letters"]


def test_completion_can_be_shown_and_installed_by_the_command_itself(call: Call) -> None:
    assert {"--install-completion", "--show-completion"} <= set(call("--help")[1].split())


def test_a_terminal_that_lacks_a_character_shows_it_escaped(tmp_path: Path) -> None:
    (tmp_path / "proxy.yaml").write_text("schlüssel: 1\n", "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "proxy", "check", "--offline", "--config", "proxy.yaml"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "`schl\\xfcssel` is not a setting" in done.stderr) == (1, True)
