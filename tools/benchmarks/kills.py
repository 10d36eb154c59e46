"""Pause in deliveries when a proxy under load is killed and started again at once. `python -m
tools.benchmarks.kills` takes five minutes, with one broker on this machine. The only proxy is
killed at random moments and keeps its folder. The pause lasts from SIGKILL until a consumer gets
the first record that was delivered after the kill."""

import random
import tempfile
import threading
import time
from pathlib import Path
from typing import Final

import numpy as np
from confluent_kafka import Consumer

from proxy.embedded.jars import kafka_version
from tests.support.installation.broker import any_broker
from tests.support.installation.installation import Installation
from tests.support.installation.load import Load
from tests.support.quiet_clients import QUIET
from tools.benchmarks.machine import describe

KILLS: Final = 40
PER_SECOND: Final = 500
LONGEST_DELAY_MS: Final = 2_000
PAUSE_S: Final = (2.0, 6.0)
PATIENCE_S: Final = 60
POLL_S: Final = 0.02


class Arrivals:
    def __init__(self, bootstrap: str, topic: str) -> None:
        config = {"group.id": f"{topic}-reader", "isolation.level": "read_committed"}
        where = {"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest"}
        self._consumer = Consumer({**where, **config, "fetch.wait.max.ms": 20, **QUIET})
        self._consumer.subscribe([topic])
        self._ending = threading.Event()
        self._last_s = 0.0
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def next_after(self, moment_s: float) -> float:
        """Wait for a record that arrives after this moment. Return when it arrived. Both times are
        monotonic seconds."""
        deadline_s = moment_s + PATIENCE_S
        while self._last_s <= moment_s:
            assert time.monotonic() < deadline_s, f"nothing was delivered for {PATIENCE_S} s"
            time.sleep(POLL_S)
        return self._last_s

    def close(self) -> None:
        self._ending.set()
        self._thread.join()
        self._consumer.close()

    def _read(self) -> None:
        while not self._ending.is_set():
            if any(message.error() is None for message in self._consumer.consume(500, POLL_S)):
                self._last_s = time.monotonic()


def measure(folder: Path) -> list[float]:
    """Return for each kill the seconds without a delivery. Check that every record ended once."""
    draw = random.Random(1)
    with any_broker(folder / "broker") as bootstrap:
        installation = Installation(bootstrap, folder)
        target = installation.target("orders", 4)
        proxy = installation.proxy()
        proxy.start_ready()
        arrivals = Arrivals(bootstrap, target)
        found = []
        try:
            load = {"per_second": PER_SECOND, "longest_delay_ms": LONGEST_DELAY_MS}
            with Load(installation, [target], **load):
                for _ in range(KILLS):
                    arrivals.next_after(time.monotonic())
                    time.sleep(draw.uniform(*PAUSE_S))
                    proxy.kill()
                    killed_s = time.monotonic()
                    time.sleep(POLL_S * 5)  # deliveries from before the kill arrive in this time
                    proxy.start()
                    found.append(arrivals.next_after(killed_s + POLL_S * 5) - killed_s)
            installation.judge()
        finally:
            arrivals.close()
            installation.close()
    return found


def main() -> None:
    print(describe(kafka_version()))
    with tempfile.TemporaryDirectory(prefix="kills-") as folder:
        found = measure(Path(folder))
    p50, p99, most = np.percentile(found, [50, 99, 100])
    print(
        f"{len(found)} kills: nothing for {p50:.2f} s (p50), {p99:.2f} s (p99), {most:.2f} s (max)"
    )


if __name__ == "__main__":
    main()
