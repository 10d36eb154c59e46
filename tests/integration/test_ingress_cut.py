"""Unread ingress records are deleted: the proxy stops with the range, never silently."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from signal import SIGCONT, SIGSTOP

import pytest
from confluent_kafka import Producer

from tests.support.installation.installation import Installation
from tests.support.installation.proxy_process import ProxyProcess
from tests.support.quiet_clients import QUIET
from tests.support.records import Outgoing, await_ends, ends, read_to_end
from tests.support.waiting import wait_for

pytestmark = pytest.mark.integration

ENDS_WITHIN_S = 180


@pytest.fixture
def installation(kafka: str, tmp_path: Path) -> Iterator[Installation]:
    made = Installation(kafka, tmp_path, partitions=1)
    yield made
    made.close()


def _asking(topic: str, value: bytes) -> list[Outgoing]:
    return [Outgoing(b"k", value, [("timer-topic", topic.encode())])]


def _proxy_that_lost_records(installation: Installation, topic: str) -> tuple[ProxyProcess, int]:
    """Return a proxy that has stopped by itself, and the new start of the ingress.

    It was frozen while the records were written one by one: a fetch in progress may take the first.
    """
    proxy = installation.proxy()
    proxy.start_ready()
    proxy.signal(SIGSTOP)
    for number in range(5):
        installation.send(_asking(topic, b"unread %d" % number))
    end = installation.delete_ingress(0)
    proxy.signal(SIGCONT)
    assert proxy.wait(ENDS_WITHIN_S) == 1, proxy.log_tail()
    return proxy, end


def test_records_deleted_before_they_were_read_end_the_proxy_with_their_range(
    installation: Installation,
) -> None:
    proxy, end = _proxy_that_lost_records(installation, installation.target())
    assert f"to {end - 1} are still needed" in proxy.log
    assert f"accept_loss_below: {{0: {end}}}" in proxy.log


def test_what_a_producer_has_aborted_and_retention_deleted_is_no_loss(
    installation: Installation, kafka: str
) -> None:
    """No other record follows. The proxy must notice the end by itself."""
    topic, proxy = installation.target(), installation.proxy()
    proxy.start_ready()
    installation.send(_asking(topic, b"before"))
    installation.await_ends(1)
    proxy.stop()
    proxy.start_ready()
    producer = Producer({"bootstrap.servers": kafka, "transactional.id": topic, **QUIET})
    producer.init_transactions(ENDS_WITHIN_S)
    producer.begin_transaction()
    producer.produce(installation.ingress, b"aborted", partition=0)
    producer.flush(ENDS_WITHIN_S)
    producer.abort_transaction(ENDS_WITHIN_S)
    await_ends(kafka, installation.ingress, {**ends(kafka, installation.ingress), 0: 3})
    installation.await_ingested()
    proxy.stop()
    assert installation.delete_ingress(0) == 3
    proxy.start_ready()
    installation.send(_asking(topic, b"behind"))
    installation.await_ends(2)


def test_a_loss_that_is_accepted_lets_the_proxy_go_on_behind_it(
    installation: Installation,
) -> None:
    topic = installation.target()
    proxy, end = _proxy_that_lost_records(installation, topic)
    proxy.configure(installation.settings("one", recovery={"accept_loss_below": {0: end}}))
    proxy.start_ready()
    installation.send(_asking(topic, b"behind it"))

    def has_arrived() -> bool:
        return b"behind it" in {one.value for one in read_to_end(installation.bootstrap, topic)}

    wait_for(has_arrived, ENDS_WITHIN_S, "the record behind the loss")
    assert "records given up" in proxy.log


def test_an_ingress_created_anew_under_the_proxy_ends_it_though_its_offsets_go_on(
    installation: Installation,
) -> None:
    topic, proxy = installation.target(), installation.proxy()
    installation.send(_asking(topic, b"old"))
    proxy.start_ready()
    installation.await_ends(1)
    proxy.signal(SIGSTOP)
    installation.create_ingress_anew()
    installation.send(_asking(topic, b"new") * 50)
    proxy.signal(SIGCONT)
    assert proxy.wait(ENDS_WITHIN_S) == 1, proxy.log_tail()
    assert "it was deleted and created again" in proxy.log
    assert "The partition now holds offsets 0 to 49" in proxy.log
