"""A lost right to write to the ingress is named, and the proxy waits for it."""

from __future__ import annotations

import signal

import pytest
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]

from tests.support.installation.installation import Installation
from tests.support.installation.rights import allow
from tests.support.oracle.asked import Rules
from tests.support.records import Outgoing
from tests.support.waiting import wait_for

pytestmark = pytest.mark.integration

QUICK = {"immunity": "1s", "check_interval": "1s", "max_checks": 1}
RULES = Rules(
    check_interval_ms=1_000, immunity_ms=1_000, max_checks=1, first_level=1, max_attempts=2
)
NAMED_WITHIN_S = 180


def _record(topic: str, **headers: str) -> Outgoing:
    asked = {"timer-topic": topic, **{f"timer-{name}": text for name, text in headers.items()}}
    return Outgoing(b"k", b"v", [(name, text.encode()) for name, text in asked.items()])


@pytest.mark.parametrize("need", ["requeue", "expiry"])
def test_proxy_that_may_not_rewrite_a_record_names_the_right_and_goes_on_once_it_has_it(
    asking_installation: Installation, need: str
) -> None:
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
    refused = f"may not write to the topic {asking_installation.ingress}"
    wait_for(lambda: refused in proxy.log, NAMED_WITHIN_S, "a session to be refused")
    assert "Grant it: kafka-acls.sh" in proxy.log

    allow(asking_installation.bootstrap, asking_installation.ingress, AclOperation.WRITE)
    ends = asking_installation.judge(rules=RULES)
    assert ends.counts["delivered"] == 1
