"""The commands of the operator's hour run unchanged, in order, in one shell."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import promql_parser
import pytest
import yaml
from confluent_kafka.cimpl import NewTopic

from proxy.embedded import EmbeddedBroker
from proxy.embedded.server import pick_free
from tests.support.page_shell import assert_as_shown, blocks, run_blocks
from tests.support.quiet_clients import admin_client

pytestmark = pytest.mark.integration

WITHIN_S = 900
REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs/operations/hour.md").read_text("utf-8")
HERE, _, ON_KUBERNETES = PAGE.partition("## On Kubernetes")
BLOCKS = blocks(HERE)
TOPICS = ("orders", "reminders")


@pytest.fixture
def bootstrap(tmp_path: Path) -> Iterator[str]:
    with EmbeddedBroker(tmp_path / "broker") as broker:
        admin = admin_client(broker.bootstrap_servers)
        for made in admin.create_topics([NewTopic(topic, 3) for topic in TOPICS]).values():
            made.result(WITHIN_S)
        yield broker.bootstrap_servers


def test_each_command_of_the_page_runs_in_its_order_and_prints_what_is_shown(
    tmp_path: Path, bootstrap: str
) -> None:
    folder = tmp_path / "hour"
    folder.mkdir()
    port = str(pick_free("127.0.0.1"))
    said = run_blocks(BLOCKS, folder, {"localhost:9092": bootstrap, "9464": port})
    print(*said)
    assert_as_shown(BLOCKS, said)
    assert sum("\n# " in code for code in BLOCKS) > 5
    for group in yaml.safe_load((folder / "orders-alerts.yaml").read_text("utf-8"))["groups"]:
        for rule in group["rules"]:
            promql_parser.parse(rule["expr"])
