"""The right to write to the ingress is taken away: the proxy ends, and names the right it lacks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]

from tests.conftest import StartBroker
from tests.support.installation.installation import Installation
from tests.support.installation.rights import ASKING, allow
from tests.support.oracle.asked import Rules
from tests.support.records import Outgoing

pytestmark = pytest.mark.integration

QUICK = {"immunity": "1s", "check_interval": "1s", "max_checks": 1}
RULES = Rules(
    check_interval_ms=1_000, immunity_ms=1_000, max_checks=1, first_level=1, max_attempts=2
)
ENDS_WITHIN_S = 180


@pytest.fixture
def installation(own_broker: StartBroker, tmp_path: Path) -> Iterator[Installation]:
    """On a broker that asks for rights; one partition."""
    made = Installation(own_broker(overrides=ASKING).bootstrap_servers, tmp_path, partitions=1)
    yield made
    made.close()


def _record(topic: str, **headers: str) -> Outgoing:
    asked = {"timer-topic": topic, **{f"timer-{name}": text for name, text in headers.items()}}
    return Outgoing(b"k", b"v", [(name, text.encode()) for name, text in asked.items()])


@pytest.mark.parametrize("need", ["requeue", "expiry"])
def test_proxy_that_may_not_rewrite_a_record_ends_with_the_right_it_lacks(
    installation: Installation, need: str
) -> None:
    """It went round for ever; the record itself is there for whoever mends the rights."""
    topic, missing = installation.target(), f"{installation.name}.missing"
    proxy = installation.proxy(transactions=QUICK, retry={"max_attempts": 2, "first_level": 1})
    proxy.start_ready()
    needing = {
        "requeue": _record(missing, delay="4s"),
        "expiry": _record(topic, id="t", transaction="prepare"),
    }
    installation.send([needing[need], _record(topic, delay="4s")])
    installation.await_ingested()
    allow(installation.bootstrap, installation.ingress, AclOperation.READ)
    assert proxy.wait(ENDS_WITHIN_S) == 1, proxy.log_tail()
    assert f"may not write to the topic {installation.ingress}" in proxy.log
    assert "Grant it Write." in proxy.log

    allow(installation.bootstrap, installation.ingress, AclOperation.WRITE)
    proxy.start_ready()
    ends = installation.judge(rules=RULES)
    assert ends.counts["delivered"] == 1
