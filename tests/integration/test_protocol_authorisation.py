"""Targets the proxy may not write to, on a broker that checks rights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]

from tests.conftest import StartBroker
from tests.support.installation.installation import Installation
from tests.support.installation.rights import ASKING, allow, deny
from tests.support.records import Outgoing

pytestmark = pytest.mark.integration


@pytest.fixture
def installation(own_broker: StartBroker, tmp_path: Path) -> Iterator[Installation]:
    made = Installation(own_broker(overrides=ASKING).bootstrap_servers, tmp_path)
    yield made
    made.close()


def _to(topic: str, name: str) -> Outgoing:
    return Outgoing(b"k", name.encode(), [("timer-topic", topic.encode())])


def test_targets_not_allowed_end_their_records_and_no_others(installation: Installation) -> None:
    orders, later = installation.target(), installation.target("later")
    forbidden, hidden = installation.target("forbidden"), installation.target("hidden")
    allow(installation.bootstrap, forbidden, AclOperation.READ)
    deny(installation.bootstrap, hidden, AclOperation.DESCRIBE)
    installation.proxy(retry={"max_attempts": 1}).start_ready()

    installation.send([_to(topic, "first") for topic in (orders, later, forbidden, hidden)])
    installation.await_ends(4)
    allow(installation.bootstrap, later, AclOperation.READ)
    installation.send([_to(topic, "second") for topic in (orders, later, orders)])

    installation.targets.remove(hidden)
    ends = installation.judge()
    letters = [letter for found in ends.dead_letters.values() for letter in found]
    assert {letter.header("timer-error") for letter in letters} == {b"not-authorised"}
    asked = sorted((letter.header("timer-topic"), letter.value) for letter in letters)
    assert asked == sorted(
        [(forbidden.encode(), b"first"), (hidden.encode(), b"first"), (later.encode(), b"second")]
    )
