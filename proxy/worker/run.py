"""The command `run`: one worker in this process, or several child processes."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, Final

import structlog
from confluent_kafka import KafkaException
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from proxy.admin.queries import Workers, receive_queries
from proxy.config.machine import DiskReserve, usable_cores
from proxy.config.settings import Settings
from proxy.errors import BrokerLate, ProxyError, require_store, require_tracing
from proxy.kafka.access import Connection as Broker
from proxy.kafka.topics import admin_client, describe_topic, ensure_topics
from proxy.logs import configure_logs
from proxy.recovery.local_state import locked_data_dir, raise_open_files
from proxy.session.reporter import AdminSide
from proxy.telemetry.status import Status
from proxy.worker.stop_signals import stop_signals
from proxy.worker.worker import run_worker
from storage.options import new_store_bytes

log = structlog.get_logger(__name__)


# A worker process sends its `Status` and metrics through a pipe once a second. The parent adds the
# label `worker` to each sample.

INTERVAL_S = 1.0
Snapshot = tuple[Status, list[Metric]]


class SnapshotSender:
    """A thread of the worker process that sends a snapshot each second."""

    def __init__(
        self,
        connection: Connection[Snapshot, None],
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
        """Send a last snapshot and close. If the parent reads no more, wait INTERVAL_S."""
        self._stop.set()
        self._thread.join(INTERVAL_S)
        self._connection.close()

    def _run(self) -> None:
        is_last = False
        with suppress(OSError):
            while not is_last:
                is_last = self._stop.wait(INTERVAL_S)
                self._connection.send((self._read_status(), list(self._registry.collect())))


class WorkerSnapshots(Collector):
    """The newest snapshot of each worker, and their merged metrics, in the parent."""

    def __init__(self) -> None:
        self._connections: dict[Connection[None, Snapshot], str] = {}
        self._latest: dict[str, Snapshot] = {}
        self._lock = threading.Lock()

    def add(self, worker: str, connection: Connection[None, Snapshot]) -> None:
        """Receive from one more worker process. `worker` becomes the label of its metrics."""
        with self._lock:
            self._connections[connection] = worker
            self._latest[worker] = (Status(heartbeat_monotonic=time.monotonic()), [])

    def receive(self, timeout_s: float) -> None:
        with self._lock:
            connections = dict(self._connections)
        ready = wait(list(connections), timeout_s)
        for connection, worker in connections.items():
            if connection in ready:
                self._take(connection, worker)

    def statuses(self) -> Sequence[Status]:
        """Return the newest status of each worker. A starting worker has no partitions."""
        with self._lock:
            return [status for status, _ in self._latest.values()]

    def collect(self) -> Iterator[Metric]:
        with self._lock:
            snapshots = {worker: metrics for worker, (_, metrics) in self._latest.items()}
        families: dict[str, Metric] = {}
        for worker, metrics in snapshots.items():
            for metric in metrics:
                _join(families, worker, metric)
        yield from families.values()

    def _take(self, connection: Connection[None, Snapshot], worker: str) -> None:
        try:
            snapshot = connection.recv()
        except (EOFError, OSError):
            with self._lock:
                del self._connections[connection]
                if worker not in self._connections.values():  # a restarted worker has another pipe
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


STOP_WITHIN_S: Final = 30.0
RESTART_AFTER_S: Final = 1.0
PARENT_GONE: Final = 70


class WorkerProcesses:
    """The worker processes of one `run`, by number. They end with their parent."""

    def __init__(
        self, settings: Settings, count: int, snapshots: WorkerSnapshots, workers: Workers
    ) -> None:
        self._settings, self._count = settings, count
        self._snapshots, self._workers = snapshots, workers
        self._spawn = multiprocessing.get_context("spawn")
        self._children: dict[int, SpawnProcess] = {}

    def run(self, is_stopping: Callable[[], bool]) -> int:
        """Run all workers until told to stop, or until one cannot go on. Return the exit code."""
        exit_code = 0
        try:
            for worker in range(self._count):
                self._start(worker)
            while not is_stopping() and exit_code == 0:
                self._snapshots.receive(0.2)
                exit_code = self._restart_dead()
        finally:
            self._stop()
        return exit_code

    def _start(self, worker: int) -> None:
        snapshots_in, snapshots_out = self._spawn.Pipe(duplex=False)
        queries_out, queries_in = self._spawn.Pipe()
        child = self._spawn.Process(
            target=_child,
            args=(self._settings, worker, snapshots_out, queries_in),
            name=f"worker-{worker}",
        )
        child.start()
        snapshots_out.close()
        queries_in.close()
        self._children[worker] = child
        self._snapshots.add(str(worker), snapshots_in)
        self._workers.add(str(worker), queries_out)

    def _restart_dead(self) -> int:
        """Restart dead workers. Return the exit code of a worker that refuses to go on."""
        for worker, child in self._children.items():
            if child.exitcode is None:
                continue
            if child.exitcode > 0 and child.exitcode != PARENT_GONE:
                return child.exitcode
            log.error("worker died; it is started again", worker=worker, exit_code=child.exitcode)
            time.sleep(RESTART_AFTER_S)
            self._start(worker)
        return 0

    def _stop(self) -> None:
        for child in self._children.values():
            child.terminate()
        deadline = time.monotonic() + STOP_WITHIN_S
        while any(c.exitcode is None for c in self._children.values()):
            self._snapshots.receive(0.1)
            if time.monotonic() > deadline:
                log.error("workers did not stop in time and are killed")
                for child in self._children.values():
                    child.kill()


def _child(
    settings: Settings,
    worker: int,
    snapshots_out: Connection[Snapshot, None],
    queries_in: Connection[Any, Any],
) -> None:
    _end_with_parent()
    configure_logs(settings.log.level, settings.log.format)
    structlog.contextvars.bind_contextvars(worker=worker)
    side = AdminSide.of_new_worker(settings.admin.targets_shown)
    receive_queries(queries_in, side.mailbox)
    sender = SnapshotSender(snapshots_out, side.metrics.registry, side.board.read)
    try:
        with stop_signals() as is_stopping:
            run_worker(settings, worker, is_stopping, side)
    except ProxyError as error:
        log.error("worker cannot continue", why=str(error))
        raise SystemExit(error.exit_code) from None
    finally:
        sender.close()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "a worker process is started by its parent"

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(PARENT_GONE)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


ANSWERED_WITHIN_S: Final = 120.0
"""The longest wait for a broker that answers late. A broker's restart takes less time."""


def run(settings: Settings) -> int:
    """Run the proxy until SIGTERM or SIGINT. Return the exit code."""
    require_store(settings.store)
    require_tracing(is_enabled=settings.tracing.enabled)
    raise_open_files()
    with locked_data_dir(settings.data_dir), stop_signals() as is_stopping:
        size_bytes = shutil.disk_usage(settings.data_dir).total
        DiskReserve(settings.disk_reserve_bytes).refuse_too_small(
            settings.data_dir, size_bytes, new_store_bytes(settings.store, settings.wheel.slots)
        )
        workers = _await_topics(settings, is_stopping)
        if workers == 1:
            exit_code = _run_here(settings, is_stopping)
        else:
            exit_code = _run_processes(settings, workers, is_stopping)
        log.info("proxy stopped")
    return exit_code


def _await_topics(settings: Settings, is_stopping: Callable[[], bool]) -> int:
    """Wait for the proxy's topics, also if the broker answers late. Return the number of workers
    to run. Fail at once if no broker accepts a connection, because the address may be wrong."""
    deadline = time.monotonic() + ANSWERED_WITHIN_S
    while not is_stopping():
        try:
            admin = admin_client(settings)
            ensure_topics(settings, admin)
            return settings.workers or _useful_workers(settings, admin)
        except BrokerLate as late:
            if time.monotonic() > deadline:
                raise
            log.warning("waiting for Kafka to start the workers", why=str(late))
    return 1


def _useful_workers(settings: Settings, admin: Broker) -> int:
    try:
        partitions = describe_topic(settings.topics.ingress, admin, settings).partitions
    except KafkaException as error:
        raise admin.sentence(error) from None
    return min(usable_cores(), partitions)


def _run_here(settings: Settings, is_stopping: Callable[[], bool]) -> int:
    side = AdminSide.of_new_worker(settings.admin.targets_shown)
    workers = Workers(side.mailbox)
    with _admin_port(settings, side.metrics.registry, lambda: [side.board.read()], workers):
        run_worker(settings, 0, is_stopping, side)
    return 0


def _run_processes(settings: Settings, count: int, is_stopping: Callable[[], bool]) -> int:
    snapshots, workers = WorkerSnapshots(), Workers()
    registry = CollectorRegistry()
    registry.register(snapshots)
    with _admin_port(settings, registry, snapshots.statuses, workers, count):
        return WorkerProcesses(settings, count, snapshots, workers).run(is_stopping)


@contextmanager
def _admin_port(
    settings: Settings,
    registry: CollectorRegistry,
    read_statuses: Callable[[], Sequence[Status]],
    workers: Workers,
    count: int = 1,
) -> Iterator[None]:
    # Other commands and worker processes need not load FastAPI.
    from proxy.admin.broker_access import BrokerAccess
    from proxy.admin.calls import Site
    from proxy.admin.pages import page_address
    from proxy.admin.server import AdminServer
    from proxy.admin.topic_readers import TopicReaders

    site = Site(
        settings,
        registry,
        read_statuses,
        workers,
        BrokerAccess(settings),
        TopicReaders(settings),
    )
    with closing(site.replays), closing(AdminServer(site)) as server:
        log.info(
            "proxy started",
            broker=settings.bootstrap_servers,
            admin_port=server.port,
            page=page_address(settings.admin.host, server.port, settings.admin.scheme),
            workers=count,
        )
        yield
