"""The proxy and the plain relay as peers, each on a Kafka broker of its own."""

import multiprocessing
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from multiprocessing.context import SpawnProcess
from pathlib import Path

from proxy.embedded import EmbeddedBroker
from tools.benchmarks import topics
from tools.benchmarks.loads import Load, Loaded, send
from tools.benchmarks.offsets import IngressOffsets
from tools.benchmarks.peers.scheduler import SCHEDULER, STOPPED_WITHIN_S, java_pid
from tools.benchmarks.processes import Job
from tools.benchmarks.proxy_process import ProxyProcess
from tools.benchmarks.reader import Arrivals, ReadOrder, read
from tools.benchmarks.scenarios.relay import relay_on

NAME = "peers"
PROXY = (sys.executable, "-m", "proxy")


class OnKafka:
    def __init__(
        self, bootstrap_servers: str, ingress_config: Mapping[str, str] | None = None
    ) -> None:
        self.address = bootstrap_servers
        self.ingress = f"{NAME}.ingress"
        self._broker_pid = java_pid("kafka.Kafka")
        topics.create(bootstrap_servers, self.ingress, config=ingress_config)

    def create(self, topic: str) -> None:
        topics.create(self.address, topic)

    def send(self, load: Load) -> Job[Loaded]:
        return Job(send, load)

    def read(self, order: ReadOrder) -> Job[Arrivals]:
        return Job(read, order)


class Ours(OnKafka):
    def __init__(self, bootstrap_servers: str, folder: Path) -> None:
        super().__init__(bootstrap_servers)
        self._proxy = ProxyProcess(PROXY, folder / "proxy", bootstrap_servers, NAME)

    @property
    def pids(self) -> Mapping[str, int]:
        return {SCHEDULER: self._proxy.pid, "broker": self._broker_pid}

    def start(self) -> None:
        self._proxy.start()

    def wait_ready(self) -> None:
        self._proxy.wait_ready()

    def stop(self) -> None:
        self._proxy.stop()

    def kill(self) -> None:
        self._proxy.stop(signal.SIGKILL)

    def wait_until_taken(self, timeout_s: float) -> bool:
        """Wait until the proxy's committed offsets are past all sent records."""
        with closing(IngressOffsets(self.address, self._proxy.group_id, self.ingress)) as looks:
            looks.wait_for(looks.written(), timeout_s)
        return True


class PlainRelay(OnKafka):
    def __init__(self, bootstrap_servers: str) -> None:
        super().__init__(bootstrap_servers)
        self._process = self._made()

    @property
    def pids(self) -> Mapping[str, int]:
        assert self._process.pid is not None, "the relay was never started"
        return {SCHEDULER: self._process.pid, "broker": self._broker_pid}

    def start(self) -> None:
        self._process = self._made()
        self._process.start()

    def wait_ready(self) -> None:
        """Return at once: the warm-up records wait in the topic."""

    def stop(self) -> None:
        self._process.terminate()
        self._process.join(STOPPED_WITHIN_S)
        self.kill()

    def kill(self) -> None:
        self._process.kill()
        self._process.join()

    def wait_until_taken(self, timeout_s: float) -> bool:
        """Return False: a relay stores no records."""
        return False

    def _made(self) -> SpawnProcess:
        context = multiprocessing.get_context("spawn")
        return context.Process(target=relay_on, args=(self.address, self.ingress), daemon=True)


@contextmanager
def ours(folder: Path) -> Iterator[Ours]:
    with EmbeddedBroker(data_dir=folder / "broker", port=0) as broker:
        scheduler = Ours(broker.bootstrap_servers, folder)
        try:
            scheduler.start()
            scheduler.wait_ready()
            yield scheduler
        finally:
            scheduler.stop()


@contextmanager
def plain_relay(folder: Path) -> Iterator[PlainRelay]:
    with EmbeddedBroker(data_dir=folder / "broker", port=0) as broker:
        scheduler = PlainRelay(broker.bootstrap_servers)
        try:
            scheduler.start()
            yield scheduler
        finally:
            scheduler.stop()
