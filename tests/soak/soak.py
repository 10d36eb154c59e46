"""One soak from beginning to end: what runs, and what is held of it afterwards."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tests.soak.faults import OF_BROKERS, OF_PROXIES, drawn
from tests.soak.nemesis import BrokerLane, Done, Lane, ProxyLane
from tests.soak.scene import VISITOR, Scene, scene
from tests.support.installation.mixed_load import MixedLoad
from tests.support.oracle.ends import Ends
from tests.support.waiting import wait_for

LOOK_EVERY_S: Final = 1.0
READY_WITHIN_S: Final = 300
ENDED_WITHIN_S: Final = 900
PAGE_BYTES: Final = 4096


class Sample(NamedTuple):
    """Resident memory of one proxy with its workers, so many seconds into the soak."""

    at_s: float
    proxy: str
    resident_bytes: int


class Soak(NamedTuple):
    """What was done and seen. `ends` are judged already."""

    seed: int
    minutes: float
    done: list[Done]
    sent: dict[str, int]
    ends: Ends
    samples: list[Sample]

    @property
    def faults(self) -> Counter[str]:
        """How often each fault was done."""
        return Counter(f"{one.lane}: {one.what}" for one in self.done)


def soak(
    folder: Path,
    *,
    seed: int,
    minutes: float,
    per_second: int,
    audit: Callable[[Scene, Ends], None],
) -> Soak:
    """Run, let everything come to rest, and judge: by the topics' own records, then by `audit`.

    Raises AssertionError for whatever should not be. The same seed gives the same faults in the
    same order, and the same records.
    """
    with scene(folder, seed) as made:
        lanes: list[Lane] = [
            ProxyLane("proxies", made, drawn(OF_PROXIES, f"{seed} proxies")),
            BrokerLane("brokers", made, drawn(OF_BROKERS, f"{seed} brokers")),
        ]
        made.installation.await_ingested()
        load = MixedLoad(made.installation, made.targets, per_second=per_second)
        with _sampled(made) as samples:
            with load:
                for lane in lanes:
                    lane.begin()
                _wait(minutes * 60, lanes)
                for lane in lanes:
                    lane.end()
            _come_to_rest(made)
            ends = made.installation.judge(ENDED_WITHIN_S, made.installation.rules)
        audit(made, ends)
        done = sorted((one for lane in lanes for one in lane.done), key=lambda one: one.began_s)
        return Soak(seed, minutes, done, load.sent, ends, samples)


def _wait(seconds: float, lanes: Sequence[Lane]) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not any(lane.failed for lane in lanes):
        time.sleep(LOOK_EVERY_S)


def _come_to_rest(made: Scene) -> None:
    """Everything is made good: brokers and proxies are there, and serve every partition."""
    made.cluster.await_whole()
    made.installation.soak_proxy(VISITOR).kill()
    for proxy in made.proxies.values():
        assert proxy.is_running, f"a proxy has ended by itself:\n{proxy.log_tail()}"

    def is_served() -> bool:
        return all(proxy.shards() >= 0 for proxy in made.proxies.values())

    wait_for(is_served, READY_WITHIN_S, "the proxies to serve everything")


@contextmanager
def _sampled(made: Scene) -> Iterator[list[Sample]]:
    """The memory of the proxies once a second, until left."""
    samples: list[Sample] = []
    ending, began = threading.Event(), time.monotonic()

    def look() -> None:
        while not ending.wait(LOOK_EVERY_S):
            for name, proxy in made.proxies.items():
                if proxy.is_running:
                    pids = [proxy.pid, *proxy.worker_pids()]
                    size = sum(map(_resident_bytes, pids))
                    samples.append(Sample(time.monotonic() - began, name, size))

    thread = threading.Thread(target=look, name="samples", daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        ending.set()
        thread.join()


def _resident_bytes(pid: int) -> int:
    """0 for a process that has ended, or where the system does not say."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]) * PAGE_BYTES
    except OSError:
        return 0
