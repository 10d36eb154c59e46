"""One soak from its start to the verdict of both judges."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tests.support.oracle.partitioned import Tally
from tests.support.waiting import wait_for
from tools.soak.broker_lane import BrokerLane
from tools.soak.faults import Choice
from tools.soak.lane import NOT_ALLOWED, Done, Lane
from tools.soak.proxy_lane import ProxyLane
from tools.soak.scene import VISITOR, Scene, scene
from tools.soak.soak_load import SoakLoad
from tools.soak.starts import Start, Starts

LOOK_EVERY_S: Final = 1.0
READY_WITHIN_S: Final = 1800
ENDED_WITHIN_S: Final = 1800
PAGE_BYTES: Final = 4096


class Sample(NamedTuple):
    at_s: float
    proxy: str
    resident_bytes: int


class Soak(NamedTuple):
    """Result of a soak. Both judges accepted `tally`. Times in `done`, `starts` and `samples` are
    seconds after `began_ms` (epoch ms). `judged_s` is the time that each judge took."""

    seed: int
    minutes: float
    began_ms: int
    done: list[Done]
    sent: dict[str, int]
    starts: list[Start]
    tally: Tally
    samples: list[Sample]
    judged_s: dict[str, float]

    @property
    def faults(self) -> Counter[str]:
        return Counter(f"{one.lane}: {one.what}" for one in self.done)


class NotHeld(AssertionError):
    def __init__(self, said: str, done: Sequence[Done]) -> None:
        super().__init__(said)
        self.done = done


def soak(
    folder: Path,
    *,
    seed: int,
    minutes: float,
    per_second: int,
    audit: Callable[[Scene, Tally], None],
    choice: Choice | None = None,
) -> Soak:
    """Run the load and the faults, and wait until all records have ended. Then two judges check the
    topics: the code of the tests, and `audit`. Raise NotHeld for a violation. The same seed gives
    the same records, and the same faults in the same order. `choice` leaves out some faults."""
    chosen = choice or Choice()
    with scene(folder, seed) as made:
        starts, began_ms = Starts(), time.time_ns() // 1_000_000
        lanes: list[Lane] = [
            ProxyLane("proxies", made, chosen.of(seed, "proxies"), starts),
            BrokerLane("brokers", made, chosen.of(seed, "brokers")),
        ]
        load = SoakLoad(made, per_second=per_second, seed=seed)
        try:
            with _sampled(made) as samples:
                with load:
                    _do_faults(lanes, minutes * 60)
                _come_to_rest(made)
                made.installation.await_end(ENDED_WITHIN_S)
            judged = time.monotonic()
            tally = made.installation.tally()
            audited = time.monotonic()
            audit(made, tally)
        except AssertionError as failed:
            raise NotHeld(str(failed), _done(lanes)) from failed
        judged_s = {"tests": audited - judged, "audit": time.monotonic() - audited}
        done = _done(lanes)
        return Soak(seed, minutes, began_ms, done, load.sent, starts.seen, tally, samples, judged_s)


def _done(lanes: Sequence[Lane]) -> list[Done]:
    done = (one for lane in lanes for one in lane.done if one.whom != NOT_ALLOWED)
    return sorted(done, key=lambda one: one.began_s)


def _do_faults(lanes: Sequence[Lane], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    for lane in lanes:
        lane.begin()
    while time.monotonic() < deadline and not any(lane.failed for lane in lanes):
        if all(lane.is_over for lane in lanes):
            break
        time.sleep(LOOK_EVERY_S)
    for lane in lanes:
        lane.end()


def _come_to_rest(made: Scene) -> None:
    made.cluster.await_whole()
    made.installation.soak_proxy(VISITOR).kill()
    for proxy in made.proxies.values():
        assert proxy.is_running, f"a proxy has ended by itself:\n{proxy.log_tail()}"

    def is_served() -> bool:
        return all(proxy.shards() >= 0 for proxy in made.proxies.values())

    wait_for(is_served, READY_WITHIN_S, "the proxies to serve everything")


@contextmanager
def _sampled(made: Scene) -> Iterator[list[Sample]]:
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
    """Return the resident memory. Return 0 if the process has ended or /proc is missing."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]) * PAGE_BYTES
    except OSError:
        return 0
