"""What the proxy was still to read is deleted under it: it ends with the range, never silently."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from signal import SIGCONT, SIGSTOP

import pytest

from tests.support.installation import Installation
from tests.support.proxy_process import ProxyProcess
from tests.support.records import Outgoing, read_to_end

pytestmark = pytest.mark.integration

ENDS_WITHIN_S = 180


@pytest.fixture
def installation(kafka: str, tmp_path: Path) -> Iterator[Installation]:
    """An ingress of one partition."""
    made = Installation(kafka, tmp_path, partitions=1)
    yield made
    made.close()


def _write_and_delete_unread(installation: Installation, proxy: ProxyProcess, topic: str) -> int:
    """While the proxy is frozen; written one by one, as a fetch under way may take the first."""
    proxy.signal(SIGSTOP)
    for number in range(5):
        installation.send(
            [Outgoing(b"k", b"unread %d" % number, [("timer-topic", topic.encode())])]
        )
    end = installation.delete_ingress(0)
    proxy.signal(SIGCONT)
    return end


def test_records_deleted_before_they_were_read_end_the_proxy_with_their_range(
    installation: Installation,
) -> None:
    topic, proxy = installation.target(), installation.proxy()
    proxy.start_ready()

    end = _write_and_delete_unread(installation, proxy, topic)

    assert proxy.wait(ENDS_WITHIN_S) == 1
    assert f"to {end - 1} are still needed" in proxy.log
    assert f"accept_loss_below: {{0: {end}}}" in proxy.log


def test_a_loss_that_is_accepted_lets_the_proxy_go_on_behind_it(
    installation: Installation,
) -> None:
    topic, proxy = installation.target(), installation.proxy()
    proxy.start_ready()
    end = _write_and_delete_unread(installation, proxy, topic)
    proxy.wait(ENDS_WITHIN_S)

    recovery = {"accept_loss_below": {0: end}}
    proxy.configure(installation.settings("one", recovery=recovery))
    proxy.start_ready()
    installation.send([Outgoing(b"k", b"behind it", [("timer-topic", topic.encode())])])

    arrived = read_to_end(installation.bootstrap, topic, at_least=1)
    assert arrived[-1].value == b"behind it"
    assert "records given up" in proxy.log
