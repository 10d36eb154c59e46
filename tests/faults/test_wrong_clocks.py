"""A clock that is wrong when the proxy starts: nothing is early, and it is said everywhere."""

from __future__ import annotations

import json
import math
import subprocess
import sys

import pytest

from tests.support.installation.installation import Installation
from tests.support.installation.proxy_process import REPOSITORY, ProxyProcess
from tests.support.records import Outgoing
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.faults]

AHEAD_S = 3_600
LATE_AT_MOST_MS = 10_000
SAID_WITHIN_S = 60


def _asking(topic: str, delay: str, ident: str) -> Outgoing:
    headers = {"timer-topic": topic, "timer-delay": delay, "timer-id": ident}
    return Outgoing(ident.encode(), b"v", [(name, v.encode()) for name, v in headers.items()])


def _check(proxy: ProxyProcess, ahead_s: int) -> list[dict[str, str]]:
    """What `check` finds of the clock, on a machine whose own is ahead by so much."""
    command = [sys.executable, "-m", "proxy", "check", "--json", "--config", str(proxy.config_path)]
    env = proxy.environment(ahead_s)
    done = subprocess.run(command, cwd=REPOSITORY, env=env, capture_output=True, check=False)
    return [one for one in json.loads(done.stdout)["findings"] if one["subject"] == "clock"]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_clock_that_is_ahead_at_the_start_delivers_nothing_early(
    installation: Installation, workers: int
) -> None:
    topic, proxy = installation.target(), installation.proxy(workers=workers)
    installation.send([_asking(topic, "30m", "later"), _asking(topic, "3s", "soon")])
    proxy.start_ready(clock_ahead_s=AHEAD_S)
    installation.await_ends(1)
    assert "clock ahead of the broker's" in proxy.log
    wait_for(lambda: proxy.metric("delay_proxy_clock_held") == workers, SAID_WITHIN_S, "the metric")
    lead_s = proxy.metric("delay_proxy_clock_lead_seconds") / workers
    assert math.isclose(lead_s, AHEAD_S, abs_tol=5)
    assert [one["verdict"] for one in _check(proxy, AHEAD_S)] == ["warn"]
    assert proxy.stop() == 0

    installation.send([_asking(topic, "1s", "then")])
    proxy.start_ready()
    cancel = [("timer-cancel", b"later")]
    installation.send([Outgoing(b"later", b"", cancel)])
    ends = installation.judge()
    assert ends.counts == {"delivered": 2, "cancelled": 1, "applied": 1}
    assert max(ends.lateness_ms) < LATE_AT_MOST_MS
    assert "clock ahead" not in proxy.log
    assert [one["verdict"] for one in _check(proxy, 0)] == ["ok"]
