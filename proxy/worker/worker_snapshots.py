"""One admin port for several worker processes.

Each child sends its `Status` and its metrics through a pipe once a second; the parent shows them
all, each sample with the label `worker`. A child whose pipe has ended is no longer shown.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from proxy.telemetry.status import Status

INTERVAL_S = 1.0
Snapshot = tuple[Status, list[Metric]]


class SnapshotSender:
    """The child's side: a thread that sends a snapshot each second until closed."""

    def __init__(
        self,
        connection: "Connection[Snapshot, None]",
        registry: CollectorRegistry,
        read_status: Callable[[], Status],
    ) -> None:
        self._connection = connection
        self._registry = registry
        self._read_status = read_status
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="snapshots", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Send a last snapshot and close; does not wait for a parent that has stopped reading."""
        self._stop.set()
        self._thread.join(INTERVAL_S)
        self._connection.close()

    def _run(self) -> None:
        try:
            while not self._stop.wait(INTERVAL_S):
                self._send()
            self._send()
        except OSError:
            return

    def _send(self) -> None:
        self._connection.send((self._read_status(), list(self._registry.collect())))


class WorkerSnapshots(Collector):
    """The parent's side: keeps the newest snapshot of each worker, and merges their metrics."""

    def __init__(self) -> None:
        self._connections: dict[Connection[None, Snapshot], str] = {}
        self._latest: dict[str, Snapshot] = {}
        self._lock = threading.Lock()

    def add(self, worker: str, connection: "Connection[None, Snapshot]") -> None:
        """Receive from one more child; `worker` becomes its label."""
        with self._lock:
            self._connections[connection] = worker
            self._latest[worker] = (Status(heartbeat_monotonic=time.monotonic()), [])

    def receive(self, timeout_s: float) -> None:
        """Take in what has arrived, waiting at most `timeout_s`; called by the parent's loop."""
        with self._lock:
            connections = dict(self._connections)
        ready = wait(list(connections), timeout_s)
        for connection, worker in connections.items():
            if connection in ready:
                self._take(connection, worker)

    def statuses(self) -> Sequence[Status]:
        """The newest status of each worker; of one that is still starting, an unassigned one."""
        with self._lock:
            return [status for status, _ in self._latest.values()]

    def collect(self) -> Iterator[Metric]:
        """The workers' metrics, families of one name joined."""
        with self._lock:
            snapshots = {worker: metrics for worker, (_, metrics) in self._latest.items()}
        families: dict[str, Metric] = {}
        for worker, metrics in snapshots.items():
            for metric in metrics:
                _join(families, worker, metric)
        yield from families.values()

    def _take(self, connection: "Connection[None, Snapshot]", worker: str) -> None:
        try:
            snapshot = connection.recv()
        except (EOFError, OSError):
            with self._lock:
                del self._connections[connection]
                self._latest.pop(worker, None)
            return
        with self._lock:
            self._latest[worker] = snapshot


def _join(families: dict[str, Metric], worker: str, metric: Metric) -> None:
    family = families.setdefault(
        metric.name, Metric(metric.name, metric.documentation, metric.type, metric.unit)
    )
    family.samples.extend(
        sample._replace(labels={**sample.labels, "worker": worker}) for sample in metric.samples
    )
