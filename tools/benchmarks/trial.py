"""Environment of a measurement: fresh topics, a fresh folder and a warm proxy."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tools.benchmarks import topics
from tools.benchmarks.accounting import Meter
from tools.benchmarks.errors import BenchmarkError
from tools.benchmarks.loads import Load, send
from tools.benchmarks.offsets import IngressOffsets
from tools.benchmarks.processes import Job
from tools.benchmarks.proxy_process import ProxyProcess
from tools.benchmarks.reader import ReadOrder, read
from tools.benchmarks.scale import Scale
from tools.benchmarks.verdict import judge


@dataclass(frozen=True, slots=True)
class World:
    """Common data of all measurements in a run. `settings` are the proxy's non-default settings."""

    bootstrap_servers: str
    broker_pid: int
    folder: Path
    proxy_command: tuple[str, ...]
    scale: Scale
    say: Callable[[str], None]
    settings: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Trial:
    world: World
    name: str
    proxy: ProxyProcess

    @property
    def ingress(self) -> str:
        return f"{self.name}.ingress"

    @property
    def target(self) -> str:
        return f"{self.name}.target"

    def load(self, count: int, delay_ms: tuple[int, int], anchor_ms: int | None = None) -> Load:
        return Load(
            bootstrap_servers=self.world.bootstrap_servers,
            ingress=self.ingress,
            target=self.target,
            count=count,
            delay_ms=delay_ms,
            anchor_ms=anchor_ms,
            value_bytes=self.world.scale.value_bytes,
            id_header=self.world.scale.id_header,
        )

    def order(self, count: int, deadline_s: float) -> ReadOrder:
        return ReadOrder(self.world.bootstrap_servers, self.target, count, deadline_s)

    def meter(self) -> Meter:
        return Meter({"broker": self.world.broker_pid, "proxy": self.proxy.pid})

    @contextmanager
    def offsets(self) -> Iterator[IngressOffsets]:
        bootstrap_servers = self.world.bootstrap_servers
        with closing(IngressOffsets(bootstrap_servers, self.proxy.group_id, self.ingress)) as looks:
            yield looks

    def wait_until_ingested(self, timeout_s: float) -> int:
        with self.offsets() as offsets:
            written = offsets.written()
            offsets.wait_for(written, timeout_s)
        return written


@contextmanager
def trial(world: World, name: str) -> Iterator[Trial]:
    folder, servers = world.folder / name, world.bootstrap_servers
    proxy = ProxyProcess(world.proxy_command, folder, servers, name, world.settings)
    made = Trial(world, name, proxy)
    topics.create(world.bootstrap_servers, made.ingress, made.target, f"{name}.warm")
    try:
        proxy.start()
        proxy.wait_ready()
        warm_up(made)
        yield made
    finally:
        proxy.stop()
        topics.delete_starting_with(world.bootstrap_servers, f"{name}.")


def warm_up(made: Trial) -> None:
    count = made.world.scale.warm_records
    warm = f"{made.name}.warm"
    load = Load(made.world.bootstrap_servers, made.ingress, warm, count, delay_ms=(100, 1_000))
    order = ReadOrder(made.world.bootstrap_servers, warm, count, deadline_s=60)
    with Job(read, order) as reader:
        reader.wait_ready()
        with Job(send, load) as generator:
            generator.result(60)
        verdict = judge(reader.result(90), load)
    if verdict.faults:
        raise BenchmarkError(
            f"{made.name}: the records that warm the proxy up did not come: {verdict}"
        )
