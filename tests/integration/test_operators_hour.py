"""The commands of the operator's hour run unchanged, in order, in one shell."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import promql_parser
import pytest
import yaml
from confluent_kafka.cimpl import NewTopic

from proxy.embedded import EmbeddedBroker
from proxy.embedded.server import pick_free
from tests.support.quiet_clients import admin_client

pytestmark = pytest.mark.integration

WITHIN_S = 900
REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs/operations/hour.md").read_text("utf-8")
HERE, _, ON_KUBERNETES = PAGE.partition("## On Kubernetes")
BLOCKS = [code for code in re.findall(r"```sh\n(.*?)```", HERE, re.DOTALL) if "pip " not in code]
TOPICS = ("orders", "reminders")
BETWEEN = "next part of the page"


@pytest.fixture
def bootstrap(tmp_path: Path) -> Iterator[str]:
    with EmbeddedBroker(tmp_path / "broker") as broker:
        admin = admin_client(broker.bootstrap_servers)
        for made in admin.create_topics([NewTopic(topic, 3) for topic in TOPICS]).values():
            made.result(WITHIN_S)
        yield broker.bootstrap_servers


def without_figures(line: str) -> str:
    unmeasured = re.sub(r"\+[\d.]+ (ms|s|min)", "+0", line)
    return re.sub(r"\s+", " ", re.sub(r"[\d:.]+([+-][\d:]+)?", "0", unmeasured)).strip()


def shown(code: str) -> list[str]:
    return [without_figures(line) for line in re.findall(r"^# (.*)$", code, re.MULTILINE)]


def run(folder: Path, bootstrap: str) -> str:
    port = str(pick_free("127.0.0.1"))
    script = f"\necho {BETWEEN}\n".join(BLOCKS)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    printed = folder.with_name("printed")
    with printed.open("wb") as out:
        shell = subprocess.Popen(
            ["sh", "-ec", script.replace("localhost:9092", bootstrap).replace("9464", port)],  # noqa: S607
            cwd=folder,
            env={**os.environ, "PATH": path, "PYTHONPATH": str(REPOSITORY)},
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        with suppress(subprocess.TimeoutExpired):
            shell.wait(WITHIN_S)
        assert shell.poll() == 0, printed.read_text("utf-8")
    finally:
        with suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
    return printed.read_text("utf-8")


def test_each_command_of_the_page_runs_in_its_order_and_prints_what_is_shown(
    tmp_path: Path, bootstrap: str
) -> None:
    folder = tmp_path / "hour"
    folder.mkdir()
    printed = run(folder, bootstrap)
    print(printed)
    parts = printed.split(f"{BETWEEN}\n")
    said = [[without_figures(line) for line in part.splitlines()] for part in parts]
    expected = [shown(code) for code in BLOCKS]
    for code, lines, wanted in zip(BLOCKS, said, expected, strict=True):
        if wanted:
            assert lines == wanted, code
    assert sum(map(bool, expected)) > 5
    for group in yaml.safe_load((folder / "orders-alerts.yaml").read_text("utf-8"))["groups"]:
        for rule in group["rules"]:
            promql_parser.parse(rule["expr"])
