"""The proxy and the plain relay, each on a Kafka broker of its own."""

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
    """What both share: topics, generator and reader."""

    def __init__(
        self, bootstrap_servers: str, ingress_config: Mapping[str, str] | None = None
    ) -> None:
        self.address = bootstrap_servers
        self.ingress = f"{NAME}.ingress"
        self._broker_pid = java_pid("kafka.Kafka")
        topics.create(bootstrap_servers, self.ingress, config=ingress_config)

    def create(self, topic: str) -> None:
        """Makes a topic for delivered records."""
        topics.create(self.address, topic)

    def send(self, load: Load) -> Job[Loaded]:
        """Sends the load in a process of its own."""
        return Job(send, load)

    def read(self, order: ReadOrder) -> Job[Arrivals]:
        """Reads in a process of its own."""
        return Job(read, order)


class Ours(OnKafka):
    """This project's proxy, with its default settings."""

    def __init__(self, bootstrap_servers: str, folder: Path) -> None:
        super().__init__(bootstrap_servers)
        self._proxy = ProxyProcess(PROXY, folder / "proxy", bootstrap_servers, NAME)

    @property
    def pids(self) -> Mapping[str, int]:
        """The proxy and its broker."""
        return {SCHEDULER: self._proxy.pid, "broker": self._broker_pid}

    def start(self) -> None:
        """Starts the proxy."""
        self._proxy.start()

    def wait_ready(self) -> None:
        """Returns when the proxy says that it is."""
        self._proxy.wait_ready()

    def stop(self) -> None:
        """SIGTERM."""
        self._proxy.stop()

    def kill(self) -> None:
        """SIGKILL."""
        self._proxy.stop(signal.SIGKILL)

    def wait_until_taken(self, timeout_s: float) -> bool:
        """Until the committed offsets have passed all that was sent."""
        with closing(IngressOffsets(self.address, self._proxy.group_id, self.ingress)) as looks:
            looks.wait_for(looks.written(), timeout_s)
        return True


class PlainRelay(OnKafka):
    """Consume, new headers, produce: no schedule, so what it is sent is due at once."""

    def __init__(self, bootstrap_servers: str) -> None:
        super().__init__(bootstrap_servers)
        self._process = self._made()

    @property
    def pids(self) -> Mapping[str, int]:
        """The relay and its broker."""
        assert self._process.pid is not None, "the relay was never started"
        return {SCHEDULER: self._process.pid, "broker": self._broker_pid}

    def start(self) -> None:
        """Starts the relay."""
        self._process = self._made()
        self._process.start()

    def wait_ready(self) -> None:
        """It needs no wait: the records that warm it up wait for it."""

    def stop(self) -> None:
        """SIGTERM, and SIGKILL to what does not end."""
        self._process.terminate()
        self._process.join(STOPPED_WITHIN_S)
        self.kill()

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.join()

    def wait_until_taken(self, timeout_s: float) -> bool:
        """It takes nothing that it does not pass on."""
        return False

    def _made(self) -> SpawnProcess:
        context = multiprocessing.get_context("spawn")
        return context.Process(target=relay_on, args=(self.address, self.ingress), daemon=True)


@contextmanager
def ours(folder: Path) -> Iterator[Ours]:
    """A running proxy on a running broker."""
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
    """A running relay on a running broker."""
    with EmbeddedBroker(data_dir=folder / "broker", port=0) as broker:
        scheduler = PlainRelay(broker.bootstrap_servers)
        try:
            scheduler.start()
            yield scheduler
        finally:
            scheduler.stop()
