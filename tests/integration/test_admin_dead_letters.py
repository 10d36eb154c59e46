"""Dead letters over the admin API on a real broker: listed, shown and replayed, none twice."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from typing import Any, cast
from unittest.mock import patch

import pytest
from prometheus_client import CollectorRegistry

from proxy.admin.app import AdminApp
from proxy.admin.calls import Site
from proxy.admin.topic_readers import TopicReaders
from proxy.config.sources import load_settings
from tests.integration.dead_letter_operator import Operator
from tests.support.dead_letters import letter_headers
from tests.support.records import Outgoing, write
from tests.support.simulation.admin_exchange import exchange
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.core]

WITHIN_S = 180
WAIT = "?wait=30s"

KILLED_AT_ITS_SECOND_BATCH = """
import os, sys
from proxy.admin.letters import wanted_by
from proxy.admin.models import ReplayBody
from proxy.admin.topic_readers import TopicReaders
from proxy.config.sources import load_settings
from proxy.dead_letters.replay import Replayer
commit, batches = Replayer._commit, []
def commit_or_die(self, letters):
    batches.append(letters)
    os.kill(os.getpid(), 9) if len(batches) == 2 else commit(self, letters)
Replayer._commit = commit_or_die
settings = load_settings()
wanted = wanted_by(ReplayBody.model_validate_json(sys.argv[1]), settings.topics)
TopicReaders(settings).replay(wanted, lambda *_: None, lambda _: None, lambda: False)
"""


class Api:
    """The API calls under an operator's settings, without a port."""

    def __init__(self, operator: Operator) -> None:
        self.topic = operator.dead_letters
        with patch.dict(os.environ, operator.environment):
            settings = load_settings()
        nothing = cast(Any, None)
        topics = TopicReaders(settings)
        self.app = AdminApp(Site(settings, CollectorRegistry(), list, nothing, nothing, topics))

    def list(self, query: str = "") -> dict[str, Any]:
        return self.ask("GET", f"?{query}")

    def show(self, partition: int, offset: int) -> dict[str, Any]:
        return self.ask("GET", f"/{self.topic}/{partition}/{offset}")

    def begin(self, wait: str = WAIT, **body: Any) -> dict[str, Any]:
        said = json.dumps({"topic": self.topic, "dry_run": False, **body}).encode()
        return self.ask("POST", f"/replays{wait}", said)

    def replay(self, **body: Any) -> dict[str, Any]:
        said = self.begin(**body)
        while said["state"] == "running":
            said = self.follow(said["id"])
        return said

    def follow(self, ident: str, wait: str = WAIT) -> dict[str, Any]:
        return self.ask("GET", f"/replays/{ident}{wait}")

    def ask(self, method: str, url: str, body: bytes = b"") -> dict[str, Any]:
        headers = {"content-type": "application/json", "content-length": str(len(body))}
        *_, text = exchange(self.app, method, f"/api/v1/dead-letters{url}", headers, body)
        said: dict[str, Any] = json.loads(text)
        return said


@pytest.fixture
def operator(kafka: str) -> Operator:
    return Operator(kafka)


def times_sent(operator: Operator) -> Counter[bytes | None]:
    return Counter(record.key for record in operator.sent_in())


def test_letters_are_listed_newest_first_page_by_page_and_shown_whole(operator: Operator) -> None:
    operator.letters(5)
    big = Outgoing(b"big", None, letter_headers("too-large", "big", f"{operator.ingress}/0/0"))
    original = [("timer-topic", b"big")]
    write(operator.kafka, operator.ingress, [Outgoing(b"big", b"huge\xff", original, 0)])
    operator.write([big])
    api = Api(operator)
    keys: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page = api.list(f"topic={api.topic}&limit=4" + (f"&cursor={cursor}" if cursor else ""))
        keys, cursor = [*keys, *(one["key"] for one in page["letters"])], page["cursor"]
    assert keys == ["big", "k4", "k3", "k2", "k1", "k0"]
    (only,) = api.list(f"topic={api.topic}&reason=too-large")["letters"]
    assert (only["bytes"], only["target"], only["replayed"]) == (None, "big", None)
    seen = api.show(only["partition"], only["offset"])
    assert (seen["value"]["base64"], seen["value_in_ingress"]) == ("aHVnZf8=", True)
    assert "Raise max.message.bytes" in seen["remedy"]
    topics = api.ask("GET", "/topics")["topics"]
    assert topics[0] == {"topic": api.topic, "group": None, "offsets": 6}
    assert "No dead letter lies at 0/99" in api.show(0, 99)["detail"]


def test_a_dry_run_changes_nothing_and_a_replay_sends_each_letter_once(operator: Operator) -> None:
    operator.letters(3)
    api = Api(operator)
    left = api.replay(dry_run=True)["left"]
    assert [(one["reason"], one["letters"]) for one in left] == [("target-refused", 3)]
    mended = {"set": {"timer-topic": operator.orders}}
    assert api.replay(dry_run=True, **mended)["replayed"] == 3
    assert operator.sent_in() == []
    said = api.replay(places=["0/1", "0/77"], **mended)
    assert (said["state"], said["replayed"], said["missing"]) == ("finished", 1, ["0/77"])
    said = api.replay(**mended)
    assert said["replayed"] == 2
    assert [one["reason"] for one in said["left"]] == ["already-replayed"]
    assert operator.replay().lines[-1]["replayed"] == 0
    assert times_sent(operator) == {b"k0": 1, b"k1": 1, b"k2": 1}
    operator.await_marks(3)
    replayed = [one["replayed"] is not None for one in api.list(f"topic={api.topic}")["letters"]]
    assert replayed == [True, True, True]


def test_a_replay_that_another_one_takes_over_ends_and_no_letter_goes_twice(
    operator: Operator,
) -> None:
    operator.letters(100)
    api = Api(operator)
    edit = {"timer-topic": operator.orders}
    slow = api.begin("?wait=0s", set=edit, rate="1/s")
    wait_for(lambda: api.follow(slow["id"], "")["replayed"] >= 3, WITHIN_S, "a part to go")
    assert operator.replay().code == 0
    said = api.follow(slow["id"])
    assert (said["state"], "Another replay from" in said["error"]) == ("failed", True)
    assert times_sent(operator) == {b"k%d" % number: 1 for number in range(100)}


def test_a_process_that_is_killed_amid_a_replay_loses_none_and_repeats_none(
    operator: Operator,
) -> None:
    """It is killed between writing the second batch and committing it."""
    operator.letters(12)
    edit = {"timer-topic": operator.orders}
    body = {"topic": operator.dead_letters, "dry_run": False, "set": edit, "rate": "20/s"}
    assert operator.run_python(KILLED_AT_ITS_SECOND_BATCH, json.dumps(body)) == -signal.SIGKILL
    said = Api(operator).replay(set=edit)
    assert (said["replayed"], [one["letters"] for one in said["left"]]) == (7, [5])
    assert times_sent(operator) == {b"k%d" % number: 1 for number in range(12)}
