"""Targets the proxy may not write to, on a broker that asks for rights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.conftest import StartBroker
from tests.support.installation import Installation
from tests.support.records import Outgoing

pytestmark = pytest.mark.integration

ASKING = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
TIMEOUT_S = 30


@pytest.fixture
def installation(own_broker: StartBroker, tmp_path: Path) -> Iterator[Installation]:
    """An installation on a broker that refuses what an ACL denies, and allows all else."""
    made = Installation(own_broker(overrides=ASKING).bootstrap_servers, tmp_path)
    yield made
    made.close()


def _rule(bootstrap: str, topic: str, operation: AclOperation, kind: AclPermissionType) -> None:
    pattern = (ResourceType.TOPIC, topic, ResourcePatternType.LITERAL)
    rule = AclBinding(*pattern, "User:ANONYMOUS", "*", operation, kind)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_acls([rule])[rule].result(TIMEOUT_S)


def _only_read(bootstrap: str, topic: str) -> None:
    """Once a topic has a rule, what no rule allows is refused; to read includes to describe."""
    _rule(bootstrap, topic, AclOperation.READ, AclPermissionType.ALLOW)


def _hide(bootstrap: str, topic: str) -> None:
    _rule(bootstrap, topic, AclOperation.DESCRIBE, AclPermissionType.DENY)


def _to(topic: str, name: str) -> Outgoing:
    return Outgoing(b"k", name.encode(), [("timer-topic", topic.encode())])


def test_targets_not_allowed_end_their_records_and_no_others(installation: Installation) -> None:
    """Denied from the start, hidden altogether, and denied after it was found to be allowed."""
    orders, later = installation.target(), installation.target("later")
    forbidden, hidden = installation.target("forbidden"), installation.target("hidden")
    _only_read(installation.bootstrap, forbidden)
    _hide(installation.bootstrap, hidden)
    installation.proxy(retry={"max_attempts": 1}).start_ready()

    installation.send([_to(topic, "first") for topic in (orders, later, forbidden, hidden)])
    installation.await_ends(4)
    _only_read(installation.bootstrap, later)
    installation.send([_to(topic, "second") for topic in (orders, later, orders)])

    installation.targets.remove(hidden)
    ends = installation.judge()
    letters = [letter for found in ends.dead_letters.values() for letter in found]
    assert {letter.header("timer-error") for letter in letters} == {b"not-authorised"}
    asked = sorted((letter.header("timer-topic"), letter.value) for letter in letters)
    assert asked == sorted(
        [(forbidden.encode(), b"first"), (hidden.encode(), b"first"), (later.encode(), b"second")]
    )
