"""A wrong clock when the proxy starts: no record is early, and every place reports it."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time

import pytest

from tests.support.installation.installation import Installation
from tests.support.installation.proxy_process import REPOSITORY, ProxyProcess
from tests.support.oracle.ends import read_ends
from tests.support.records import Outgoing, set_topic_config
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.faults]

AHEAD_S = 3_600
LATE_AT_MOST_MS = 120_000
SAID_WITHIN_S = 180
MINUTES_MS = str(120_000)
PRODUCERS_TIME = {
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": MINUTES_MS,
    "message.timestamp.after.max.ms": MINUTES_MS,
}
"""A topic that refuses records whose time is minutes away from the broker's time."""


def _asking(topic: str, delay: str, ident: str) -> Outgoing:
    headers = {"timer-topic": topic, "timer-delay": delay, "timer-id": ident}
    return Outgoing(ident.encode(), b"v", [(name, v.encode()) for name, v in headers.items()])


def _due(topic: str, before_s: float) -> Outgoing:
    due_ms = int((time.time() - before_s) * 1_000)
    asked = [("timer-topic", topic.encode()), ("timer-deliver-at", b"%d" % due_ms)]
    return Outgoing(b"k", b"v", asked)


def _check(proxy: ProxyProcess, subject: str = "clock") -> list[dict[str, str]]:
    command = [sys.executable, "-m", "proxy", "check", "--json", "--config", str(proxy.config_path)]
    env = proxy.environment()
    done = subprocess.run(command, cwd=REPOSITORY, env=env, capture_output=True, check=False)
    return [one for one in json.loads(done.stdout)["findings"] if one["subject"] == subject]


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
    assert [one["verdict"] for one in _check(proxy)] == ["warn"]
    assert proxy.stop() == 0

    installation.send([_asking(topic, "1s", "then")])
    proxy.start_ready(clock_ahead_s=0)
    cancel = [("timer-cancel", b"later")]
    installation.send([Outgoing(b"later", b"", cancel)])
    ends = installation.judge()
    assert ends.counts == {"delivered": 2, "cancelled": 1, "applied": 1}
    assert max(ends.lateness_ms) < LATE_AT_MOST_MS
    assert "clock ahead" not in proxy.log
    assert [one["verdict"] for one in _check(proxy)] == ["ok"]


def test_a_watermark_that_was_left_ahead_is_named_and_can_be_set_back(
    installation: Installation,
) -> None:
    """The broker's time was unknown, so a record was early. Later records must not be delayed."""
    topic, proxy = installation.target(), installation.proxy()
    installation.create_settings_topic({"message.timestamp.type": "CreateTime"})
    installation.send([_asking(topic, "30m", "early"), _asking(topic, "61m", "later")])
    proxy.start_ready(clock_ahead_s=AHEAD_S)
    installation.await_ends(1)
    assert "clock not compared with the broker's" in proxy.log
    assert [one["verdict"] for one in _check(proxy)] == ["warn"]
    assert proxy.stop() == 0

    stamped = {"message.timestamp.type": "LogAppendTime", "cleanup.policy": "compact"}
    set_topic_config(installation.bootstrap, installation.settings_topic, stamped)
    installation.send([_asking(topic, "20m", "later still"), _asking(topic, "1s", "then")])
    proxy.start(clock_ahead_s=0)
    ahead = "delay_proxy_watermark_ahead_seconds"
    wait_for(lambda: proxy.metric(ahead) > AHEAD_S / 2, SAID_WITHIN_S, "the metric")
    assert "watermark ahead of the clock" in proxy.log
    assert 1 in {len(_check(proxy, f"partition {number}")) for number in (0, 1)}
    assert proxy.stop() == 0

    proxy.configure(installation.settings("one", recovery={"set_back_watermark": [0, 1]}))
    proxy.start_ready()
    installation.await_ends(2)
    cancels = [Outgoing(i, b"", [("timer-cancel", i)]) for i in (b"later", b"later still")]
    installation.send(cancels)
    installation.await_ends(6)
    wait_for(lambda: proxy.metric(ahead) == 0, SAID_WITHIN_S, "the metric")
    assert proxy.stop() == 0
    ends = read_ends(installation)
    assert ends.counts == {"delivered": 2, "cancelled": 2, "applied": 2}
    assert sum(late_ms < 0 for late_ms in ends.lateness_ms) == 1


@pytest.mark.parametrize("ahead_s", [AHEAD_S + 100, -AHEAD_S - 100], ids=["ahead", "behind"])
def test_what_is_delivered_carries_a_time_that_its_target_takes(
    installation: Installation, ahead_s: int
) -> None:
    topic = installation.target(config=PRODUCERS_TIME)
    installation.proxy().start_ready(clock_ahead_s=ahead_s)
    installation.send([_due(topic, 2 * AHEAD_S)])
    ends = installation.judge()
    assert ends.counts == {"delivered": 1}


def test_a_record_whose_time_is_refused_waits_until_the_clock_is_right(
    installation: Installation,
) -> None:
    topic, proxy = installation.target(config=PRODUCERS_TIME), installation.proxy()
    installation.create_settings_topic({"message.timestamp.type": "CreateTime"})
    proxy.start_ready(clock_ahead_s=-AHEAD_S - 100)
    installation.send([_due(topic, AHEAD_S + 100)])
    said = "the broker rejects the time of records"
    wait_for(lambda: said in proxy.log, SAID_WITHIN_S, "the line in the log")
    proxy.shift_clock(0)
    wait_for(
        lambda: read_ends(installation).counts["delivered"] == 1, SAID_WITHIN_S, "its delivery"
    )
    ends = installation.judge()
    assert ends.counts.keys() == {"delivered", "requeued"}
