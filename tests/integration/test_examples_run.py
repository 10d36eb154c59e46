"""The examples and the README's commands, run as a reader would run them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.cimpl import NewTopic

from proxy.embedded import EmbeddedBroker
from tests.support.installation.proxy_process import ProxyProcess
from tests.support.quiet_clients import admin_client

pytestmark = pytest.mark.integration

WITHIN_S = 180
REPOSITORY = Path(__file__).parents[2]
EXAMPLES = REPOSITORY / "examples"
COMMAND = Path(sys.executable).with_name("kafka-delay-proxy")
README = (REPOSITORY / "README.md").read_text("utf-8")
PASTED = [code for code in re.findall(r"```sh\n(.*?)```", README, re.DOTALL) if "make" not in code]
OWN_TOPIC = "readme-orders"
BY_DEFAULT = {
    "client_send.py": ["in two seconds", "at its time", "at level 1"],
    "client_cancel_replace.py": ["arrived: second, replaced"],
    "client_batch.py": ["arrived: 100 records"],
    "client_retry_consumer.py": ["'fails at first', failed 1 times before", "done;"],
    "client_orderly_consumer.py": [
        "order 1: paid, failed 2 times before",
        "each order in its order",
    ],
    "client_transaction.py": [
        "arrived: paid\n",
        "arrived: paid, later",
        "arrived: paid, but who knows",
    ],
    "missing_topic.py": ["at first: requeued", "arrived: worth waiting for"],
    "dead-letters.sh": ["header-unknown", "timer-dealy", "Would replay 1 of 1", "Replayed 1"],
}
BY_OWN_SETTINGS = {
    "long_delay.py": ["rolled timer.ingress/", "arrived: after ten seconds", "first written as"],
    "alias_headers.py": ["as for cesium", "as for etf1", "as for RabbitMQ"],
    "release.py": ["30 records at 10 a second took", "dead letter: overdue"],
}


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with EmbeddedBroker(tmp_path_factory.mktemp("examples") / "broker") as broker:
        admin = admin_client(broker.bootstrap_servers)
        for made in admin.create_topics([NewTopic(t, 3) for t in ("orders", OWN_TOPIC)]).values():
            made.result(WITHIN_S)
        yield broker.bootstrap_servers


@contextmanager
def served(bootstrap: str, folder: Path, settings: dict[str, Any]) -> Iterator[None]:
    proxy = ProxyProcess(folder, {"kafka": {"bootstrap.servers": bootstrap}, **settings})
    proxy.start_ready()
    try:
        yield
    finally:
        proxy.kill()
        print(proxy.log_tail())


@pytest.fixture(scope="class")
def by_default(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with served(bootstrap, tmp_path_factory.mktemp("proxy"), {}):
        yield


@pytest.fixture(scope="class")
def by_own_settings(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    settings = yaml.safe_load((EXAMPLES / "proxy.yaml").read_text())
    with served(bootstrap, tmp_path_factory.mktemp("proxy"), settings):
        yield


def run(file: str, bootstrap: str) -> str:
    interpreter = ["sh"] if file.endswith(".sh") else [sys.executable]
    own = {"KAFKA_BOOTSTRAP_SERVERS": bootstrap, "PYTHONPATH": str(REPOSITORY)}
    ran = subprocess.run(
        [*interpreter, f"examples/{file}", *([bootstrap] if interpreter == ["sh"] else [])],
        cwd=REPOSITORY,
        env={**os.environ, **own, "PROXY": str(COMMAND)},
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def show(bootstrap: str, file: str, shown: list[str]) -> None:
    said = run(file, bootstrap)
    assert all(text in said for text in shown), said
    assert "never to be seen" not in said
    assert "not paid" not in said


def paste(code: str, bootstrap: str) -> str:
    code = re.sub(r"\borders\b", OWN_TOPIC, code.replace("localhost:9092", bootstrap))
    path = f"{COMMAND.parent}:{os.environ['PATH']}"  # as `make shell` sets it
    ran = subprocess.run(
        ["sh", "-ec", code],  # noqa: S607
        cwd=REPOSITORY,
        env={**os.environ, "PATH": path, "DELAY_PROXY_KAFKA__BOOTSTRAP_SERVERS": bootstrap},
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout.replace(OWN_TOPIC, "orders")


def without_figures(line: str) -> str:
    line = re.sub(r"\d{4}-\d\d-\d\d (?=\d\d:)", "", line)
    return re.sub(r"\s+", " ", re.sub(r"[\d:.]+", "0", line))


@pytest.mark.usefixtures("by_default")
class TestWithTheDefaults:
    @pytest.mark.parametrize("code", PASTED, ids=["first", "plain headers"])
    def test_the_readme_s_commands_run_as_pasted_and_print_what_it_shows(
        self, bootstrap: str, code: str
    ) -> None:
        shown = re.findall(r"^# (.*)$", code, re.MULTILINE)
        printed = paste(code, bootstrap).splitlines()
        assert list(map(without_figures, printed)) == list(map(without_figures, shown))

    @pytest.mark.parametrize(("file", "shown"), BY_DEFAULT.items())
    def test_an_example_shows_what_it_is_about(
        self, bootstrap: str, file: str, shown: list[str]
    ) -> None:
        show(bootstrap, file, shown)


@pytest.mark.usefixtures("by_own_settings")
class TestWithTheirSettings:
    @pytest.mark.parametrize(("file", "shown"), BY_OWN_SETTINGS.items())
    def test_an_example_shows_what_it_is_about(
        self, bootstrap: str, file: str, shown: list[str]
    ) -> None:
        show(bootstrap, file, shown)
