"""Broker outages under load: records are late, but delivered once and never early."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from signal import SIGCONT, SIGSTOP

import pytest

from proxy.embedded import EmbeddedBroker
from tests.conftest import StartBroker
from tests.support.installation.installation import Installation
from tests.support.installation.load import Load
from tests.support.installation.proxy_process import ProxyProcess
from tests.support.oracle.asked import Rules, levels_ms
from tests.support.oracle.auditor import Auditor
from tests.support.records import Outgoing
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.faults]

BEFORE_S, OUTAGE_S, AFTER_S = 2, 8, 1
"""The outage outlasts the proxy's session and transaction, 6 s each."""
RETRIED = 50
NOTICED_WITHIN_S = 120
IDLE_OUTAGE_S = 2


@pytest.fixture
def broker(own_broker: StartBroker) -> EmbeddedBroker:
    return own_broker()


@pytest.fixture
def installation(broker: EmbeddedBroker, tmp_path: Path) -> Iterator[Installation]:
    made = Installation(broker.bootstrap_servers, tmp_path)
    yield made
    made.close()


def _go_away(broker: EmbeddedBroker, how: str, outage_s: float) -> None:
    if how == "freeze":
        broker.signal(SIGSTOP)
        time.sleep(outage_s)
        broker.signal(SIGCONT)
    else:
        broker.stop() if how == "stop" else broker.kill()
        time.sleep(outage_s)
        broker.start()


def _outage(
    broker: EmbeddedBroker,
    installation: Installation,
    auditor: Auditor,
    how: str,
    outage_s: float,
) -> None:
    targets = [installation.target(partitions=2)]
    kafka = installation.kafka(**{"transaction.timeout.ms": "6000"})
    installation.proxy(kafka=kafka).start_ready()
    with Load(installation, targets) as load:
        time.sleep(BEFORE_S)
        _go_away(broker, how, outage_s)
        time.sleep(AFTER_S)
    ends = installation.judge(360)
    assert ends.counts == {"delivered": load.sent}
    auditor.confirm(installation, ends)


@pytest.mark.parametrize("how", [pytest.param("stop", marks=pytest.mark.long), "kill"])
def test_broker_away_for_a_while_costs_nothing_but_time(
    broker: EmbeddedBroker, installation: Installation, auditor: Auditor, how: str
) -> None:
    _outage(broker, installation, auditor, how, OUTAGE_S)


def test_proxy_that_was_idle_while_the_broker_was_away_goes_on(
    broker: EmbeddedBroker, installation: Installation
) -> None:
    """librdkafka 2.16 never returns from its next call in this case, and ignores the time-out."""
    target = installation.target(partitions=2)
    installation.proxy().start_ready()
    delayed = [("timer-topic", target.encode()), ("timer-delay", b"8000")]
    installation.send(Outgoing(b"%d" % number, b"value", delayed) for number in range(100))
    installation.await_ingested()
    broker.kill()
    time.sleep(IDLE_OUTAGE_S)
    broker.start()
    assert installation.judge(360).counts == {"delivered": 100}


def test_proxy_that_starts_while_the_broker_does_not_answer_waits_for_it(
    broker: EmbeddedBroker, installation: Installation
) -> None:
    installation.target()
    proxy, stopped = installation.proxy("one"), installation.proxy("two")
    broker.signal(SIGSTOP)
    try:
        for waiting in (proxy, stopped):
            waiting.start()
        for waiting in (proxy, stopped):
            wait_for(partial(_waits, waiting), NOTICED_WITHIN_S, "a proxy that waits")
        assert stopped.stop() == 0
    finally:
        broker.signal(SIGCONT)
    proxy.wait_ready()


def _waits(proxy: ProxyProcess) -> bool:
    assert proxy.is_running, proxy.log_tail()
    return "does not answer in time" in proxy.log


def test_records_that_are_tried_again_outlive_an_outage(
    broker: EmbeddedBroker, installation: Installation
) -> None:
    """The target topic is created after the outage. The records keep their first origin.

    No transaction is open when the broker dies: Kafka may never end it (KAFKA-20734).
    """
    topic, kafka = f"{installation.name}.late", installation.kafka()
    levels = " ".join(["6s"] * 15)
    proxy = installation.proxy(levels=levels, retry={"first_level": 1}, kafka=kafka)
    proxy.start_ready()
    asking = [("timer-topic", topic.encode())]
    installation.send(Outgoing(b"%d" % number, b"value", asking) for number in range(RETRIED))
    installation.await_ends(RETRIED)
    installation.await_ingested()
    broker.kill()
    time.sleep(IDLE_OUTAGE_S)
    broker.start()
    installation.named_target(topic)
    ends = installation.judge(120, Rules(levels_ms=levels_ms(levels)))
    assert ends.counts["delivered"] == RETRIED
    assert set(ends.counts) == {"delivered", "requeued"}


@pytest.mark.long
@pytest.mark.parametrize("how", ["stop", "kill", "freeze"])
def test_broker_away_for_a_minute_costs_nothing_but_time(
    broker: EmbeddedBroker, installation: Installation, auditor: Auditor, how: str
) -> None:
    _outage(broker, installation, auditor, how, 60)
