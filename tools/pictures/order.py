"""One record with a history. It is moved to another time and delivered. Then a consumer fails, and
the record is delivered again."""

from __future__ import annotations

import time
from typing import Any, Final

from kafka_delay.kafka import Place
from kafka_delay.retries import Failure, Received, RetryPlan
from proxy.dead_letters.letter import read_origin
from tests.support.installation.admin_client import call
from tests.support.installation.proxy_process import ProxyProcess
from tests.support.records import Outgoing, write
from tests.support.waiting import wait_for
from tools.pictures.records import GROUP, INGRESS, VALUE, request

ID: Final = "order-17"
WITHIN_S: Final = 180


def live(bootstrap: str, proxy: ProxyProcess) -> str:
    """Write the record and create its history, which takes 15 seconds. Return the record's
    origin."""
    now_ms = time.time_ns() // 1_000_000
    asked = request("orders-eu", now_ms + 3_600_000, ID)
    write(bootstrap, INGRESS, [Outgoing(b"c-17", VALUE, asked)])
    wait_for(lambda: call(proxy, "GET", f"/records?id={ID}")[0] == 200, WITHIN_S, "the order")
    origin: str = call(proxy, "GET", f"/records?id={ID}")[1]["records"][0]["origin"]
    call(proxy, "PATCH", f"/records/{origin}?wait=30s", {"deliver_at": now_ms + 10_000})
    _fail_at(bootstrap, _delivered(proxy, origin, 1)["where"])
    _delivered(proxy, origin, 2)
    return origin


def _delivered(proxy: ProxyProcess, origin: str, times: int) -> dict[str, Any]:
    found: list[dict[str, Any]] = []

    def is_told() -> bool:
        code, told = call(proxy, "GET", f"/records/{origin}/trace")
        steps = told["steps"] if code == 200 else []
        found[:] = [step for step in steps if step["what"] == "delivered"]
        return len(found) == times

    wait_for(is_told, WITHIN_S, f"delivery {times} of {origin}")
    return found[-1]


def _fail_at(bootstrap: str, where: str) -> None:
    place = read_origin(where)
    assert place is not None
    here = Place(*place)
    received = Received(here, here, 0, b"c-17", VALUE, [], 0)
    asked = RetryPlan(GROUP, [], "").request(received, Failure("OutOfStock: A-100"))
    write(bootstrap, INGRESS, [Outgoing(asked.key, asked.value, asked.headers)])
