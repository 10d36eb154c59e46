"""Time from the start of a killed proxy to its first delivery."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from tests.support.installation.proxy_process import ProxyProcess
from tools.soak.faults import Fault

LOOK_EVERY_S: Final = 0.1
GIVEN_UP_AFTER_S: Final = 120
DELIVERIES: Final = "delay_proxy_deliveries_total"
TAKEN_OVER: Final = '"shard taken over"'


class Start(NamedTuple):
    """Start after a SIGKILL, `at_s` seconds after the start of the soak. `first_delivery_s` and
    `caught_up_s` are seconds after the start of the process. `read_again` counts the ingress
    records that the proxy read again, because its data on disk did not have them."""

    fault: str
    number: int
    proxy: str
    at_s: float
    first_delivery_s: float
    read_again: int
    caught_up_s: float


class Starts:
    """Starts of proxies. A thread watches each proxy until it has caught up and delivered. A proxy
    that ends earlier is left out."""

    def __init__(self) -> None:
        self.seen: list[Start] = []
        self._began = time.monotonic()

    def start(self, proxy: ProxyProcess, fault: Fault) -> None:
        proxy.start()
        named = f"{proxy.folder.name} after {fault.what}"
        threading.Thread(target=self._watch, args=(proxy, fault), name=named, daemon=True).start()

    def _watch(self, proxy: ProxyProcess, fault: Fault) -> None:
        began, pid = time.monotonic(), proxy.pid
        delivered_s = caught_up_s = 0.0
        while not (delivered_s and caught_up_s):
            time.sleep(LOOK_EVERY_S)
            passed_s = time.monotonic() - began
            if passed_s > GIVEN_UP_AFTER_S or proxy.pid != pid or not proxy.is_running:
                return
            if not delivered_s and proxy.metric(DELIVERIES):
                delivered_s = passed_s
            if not caught_up_s and proxy.shards() > 0:
                caught_up_s = passed_s
        at_s, read = began - self._began, sum(_read_again(proxy.log))
        name = proxy.folder.name
        self.seen.append(
            Start(fault.what, fault.number, name, at_s, delivered_s, read, caught_up_s)
        )


def _read_again(log: str) -> Iterator[int]:
    for line in log.splitlines():
        if TAKEN_OVER in line:
            with suppress(json.JSONDecodeError):  # the line is incomplete
                said = json.loads(line)
                yield said["end"] - said["read_from"]
