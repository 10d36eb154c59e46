"""The right to write to the ingress is taken away: the proxy ends, and names the right it lacks."""

from __future__ import annotations

import signal

import pytest
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]

from tests.support.installation.installation import Installation
from tests.support.installation.rights import allow
from tests.support.oracle.asked import Rules
from tests.support.records import Outgoing

pytestmark = pytest.mark.integration

QUICK = {"immunity": "1s", "check_interval": "1s", "max_checks": 1}
RULES = Rules(
    check_interval_ms=1_000, immunity_ms=1_000, max_checks=1, first_level=1, max_attempts=2
)
ENDS_WITHIN_S = 180


def _record(topic: str, **headers: str) -> Outgoing:
    asked = {"timer-topic": topic, **{f"timer-{name}": text for name, text in headers.items()}}
    return Outgoing(b"k", b"v", [(name, text.encode()) for name, text in asked.items()])


@pytest.mark.parametrize("need", ["requeue", "expiry"])
def test_proxy_that_may_not_rewrite_a_record_ends_with_the_right_it_lacks(
    asking_installation: Installation, need: str
) -> None:
    """It went round for ever; the record itself is there for whoever mends the rights."""
    topic, missing = asking_installation.target(), f"{asking_installation.name}.missing"
    proxy = asking_installation.proxy(
        transactions=QUICK, retry={"max_attempts": 2, "first_level": 1}
    )
    proxy.start_ready()
    proxy.signal(signal.SIGSTOP)
    needing = {
        "requeue": _record(missing, delay="4s"),
        "expiry": _record(topic, id="t", transaction="prepare"),
    }
    asking_installation.send([needing[need], _record(topic, delay="4s")])
    allow(asking_installation.bootstrap, asking_installation.ingress, AclOperation.READ)
    proxy.signal(signal.SIGCONT)
    assert proxy.wait(ENDS_WITHIN_S) == 1, proxy.log_tail()
    assert f"may not write to the topic {asking_installation.ingress}" in proxy.log
    assert "Grant it Write." in proxy.log

    allow(asking_installation.bootstrap, asking_installation.ingress, AclOperation.WRITE)
    proxy.start_ready()
    ends = asking_installation.judge(rules=RULES)
    assert ends.counts["delivered"] == 1
