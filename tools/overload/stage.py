"""Environment of a scenario: a broker, a proxy with one worker, and a reader with a ledger."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from proxy.embedded import EmbeddedBroker
from tools.benchmarks import topics
from tools.benchmarks.loads import Load, Loaded, send
from tools.benchmarks.processes import Job
from tools.benchmarks.proxy_process import ProxyProcess
from tools.benchmarks.scale import FULL
from tools.benchmarks.trial import Trial, World
from tools.overload.follower import Following, follow
from tools.overload.ledger import Account
from tools.overload.progress import Progress
from tools.overload.scene import Scene
from tools.overload.sizes import Sizes
from tools.overload.timeline import Timeline

PATIENCE_S: Final = 3_600
READY_WITHIN_S: Final = 900
SILENT_S: Final = 180
"""After this time without arrivals, records that have not arrived count as missing."""
LOOK_EVERY_S: Final = 0.05
SETTINGS: Final = {"log": {"format": "json"}}

Figures = dict[str, Any]


class Stage:
    def __init__(
        self, made: Trial, scene: Scene, sizes: Sizes, timeline: Timeline, progress: Progress
    ) -> None:
        self.made, self.scene, self.sizes = made, scene, sizes
        self.timeline, self.progress = timeline, progress
        self.say = made.world.say

    def start(self) -> float:
        began_s = self.launch()
        return self.wait_ready(began_s)

    def launch(self) -> float:
        """Start the process. Return the moment (monotonic, s)."""
        self.timeline.mark("start")
        began_s = time.monotonic()
        self.made.proxy.start()
        self.timeline.pid = self.made.proxy.pid
        return began_s

    def wait_ready(self, began_s: float) -> float:
        self.made.proxy.wait_ready(READY_WITHIN_S)
        self.timeline.mark("ready")
        return round(time.monotonic() - began_s, 2)

    def stop(self) -> float:
        self.timeline.mark("stopped")
        self.timeline.pid = None
        began_s = time.monotonic()
        self.made.proxy.stop()
        return round(time.monotonic() - began_s, 2)

    def kill(self) -> None:
        self.timeline.mark("killed")
        self.timeline.pid = None
        self.made.proxy.stop(signal.SIGKILL)

    def load(self, phase: int, delay_ms: tuple[int, int], anchor_ms: int | None = None) -> Load:
        before = sum(one.most_records for one in self.scene.phases[:phase])
        load = self.made.load(self.scene.phases[phase].most_records, delay_ms, anchor_ms)
        return replace(load, first_sequence=before, targets=self.scene.targets, seed=phase + 1)

    @contextmanager
    def sending(self, phase: int, load: Load) -> Iterator[Job[Loaded]]:
        with Job(send, load, self.progress.telling(phase)) as generator:
            yield generator

    def send(self, phase: int, load: Load) -> Loaded:
        name = self.scene.phases[phase].name
        with self.sending(phase, load) as generator:
            loaded = generator.result(PATIENCE_S)
        self.timeline.mark(f"{name} written")
        self.say(f"{self.made.name}: {loaded.count:,} records written ({name})")
        return loaded

    def await_ingested(self) -> None:
        self.made.wait_until_ingested(PATIENCE_S)
        self.timeline.mark("ingested")

    def await_received(self, records: int, not_before_ms: float = 0) -> None:
        time.sleep(max(0.0, not_before_ms / 1000 - time.time()))
        seen, heard_s = -1, time.monotonic()
        while (now := self.progress.received) < records:
            if now != seen:
                seen, heard_s = now, time.monotonic()
            if time.monotonic() - heard_s > SILENT_S:
                self.say(f"{self.made.name}: no record arrives after {now:,} of {records:,}")
                return
            time.sleep(LOOK_EVERY_S)


@contextmanager
def staged(
    name: str, scene: Scene, sizes: Sizes, folder: Path, say: Callable[[str], None]
) -> Iterator[Stage]:
    """Yield a stage in an empty folder, with topics. Only the broker runs."""
    broker = EmbeddedBroker(folder / "broker", overrides=scene.broker, heap_mb=scene.heap_mb)
    say(f"{name}: broker and topics")
    progress = Progress([phase.is_awaited for phase in scene.phases])
    with broker, closing(Timeline(progress)) as timeline:
        made = _trial(name, scene, sizes, broker.bootstrap_servers, folder, say)
        try:
            yield Stage(made, scene, sizes, timeline, progress)
        finally:
            timeline.pid = None
            made.proxy.stop()


def _trial(
    name: str, scene: Scene, sizes: Sizes, servers: str, folder: Path, say: Callable[[str], None]
) -> Trial:
    command = (sys.executable, "-m", "proxy")
    scale = replace(FULL, value_bytes=scene.value_bytes, warm_records=sizes.warm_records)
    world = World(servers, 0, folder, command, scale, say)
    proxy = ProxyProcess(command, folder / name, servers, name, SETTINGS)
    made, config = Trial(world, name, proxy), scene.topic_config
    topics.create(servers, made.ingress, partitions=scene.partitions, config=config)
    targets = topics.numbered(made.target, scene.targets)
    topics.create(servers, *targets, partitions=scene.target_partitions, config=config)
    topics.create(servers, f"{name}.warm", config=config)
    return made


@contextmanager
def reader_of(stage: Stage) -> Iterator[Job[Account]]:
    following = Following(
        stage.made.world.bootstrap_servers,
        topics.numbered(stage.made.target, stage.scene.targets),
        stage.scene.phases,
        silent_s=5,
        queued_kbytes=stage.scene.queued_kbytes,
    )
    with Job(follow, following, stage.progress) as reader:
        reader.wait_ready(300)
        yield reader
