"""Runs the proxy: one worker in this process, or several in processes of their own."""

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Final

import structlog
from confluent_kafka import KafkaException
from prometheus_client import CollectorRegistry

from proxy.admin.api import AdminApi
from proxy.admin.broker_access import BrokerAccess
from proxy.admin.calls import Calls
from proxy.admin.dead_letters.kafka_letters import KafkaLetters
from proxy.admin.dead_letters.letter_calls import LetterCalls
from proxy.admin.lineage.kafka_traces import KafkaTraces
from proxy.admin.lineage.trace_calls import TraceCalls
from proxy.admin.page.event_streams import EventStreams
from proxy.admin.page.page_files import page_address
from proxy.admin.page.snapshots import Snapshots
from proxy.admin.server import AdminServer
from proxy.admin.workers import ChildWorkers, ThisWorker, Workers
from proxy.clock import wall_clock_ms
from proxy.config.cores import usable_cores
from proxy.config.disk_reserve import DiskReserve
from proxy.config.settings import Settings
from proxy.errors import BrokerLate
from proxy.extras import require_store, require_tracing
from proxy.kafka.access.broker_errors import HearingAdminClient
from proxy.kafka.topics import admin_client, describe_topic, ensure_topics
from proxy.recovery.local_state import locked_data_dir
from proxy.recovery.open_files import raise_open_files
from proxy.session.admin_side import AdminSide
from proxy.telemetry.status import Status
from proxy.worker.stop_signals import stop_signals
from proxy.worker.worker import run_worker
from proxy.worker.worker_processes import WorkerProcesses
from proxy.worker.worker_snapshots import WorkerSnapshots

ANSWERED_WITHIN_S: Final = 120.0
"""Longer than any broker's restart takes; each try takes some seconds by itself."""

log = structlog.get_logger(__name__)


def run(settings: Settings) -> int:
    """Run the proxy until SIGTERM or SIGINT; the exit code."""
    require_store(settings.store)
    require_tracing(is_enabled=settings.tracing.enabled)
    raise_open_files()
    with locked_data_dir(settings.data_dir), stop_signals() as is_stopping:
        size_bytes = shutil.disk_usage(settings.data_dir).total
        DiskReserve(settings.disk_reserve_bytes).refuse_unreachable(settings.data_dir, size_bytes)
        workers = _await_topics(settings, is_stopping)
        if workers == 1:
            exit_code = _run_here(settings, is_stopping)
        else:
            exit_code = _run_processes(settings, workers, is_stopping)
        log.info("proxy stopped")
    return exit_code


def _await_topics(settings: Settings, is_stopping: Callable[[], bool]) -> int:
    """How many workers are to run, once the own topics are there, or it is told to stop.

    Brokers that come and go are waited for, as they are later on. Addresses at which nobody
    listens are an error at once: they may be wrong.
    """
    deadline = time.monotonic() + ANSWERED_WITHIN_S
    while not is_stopping():
        try:
            admin = admin_client(settings)
            ensure_topics(settings, admin)
            return settings.workers or _workers_that_pay(settings, admin)
        except BrokerLate as late:
            if time.monotonic() > deadline:
                raise
            log.warning("start waits for Kafka", why=str(late))
    return 1


def _workers_that_pay(settings: Settings, admin: HearingAdminClient) -> int:
    """One for each core that may be used, and at most one for each ingress partition."""
    try:
        partitions = describe_topic(settings.topics.ingress, admin, settings).partitions
    except KafkaException as error:
        raise admin.sentence(error) from None
    return min(usable_cores(), partitions)


def _run_here(settings: Settings, is_stopping: Callable[[], bool]) -> int:
    side = AdminSide.of_new_worker(settings.admin.targets_shown)
    workers = ThisWorker(side.mailbox)
    with _admin_port(settings, side.metrics.registry, lambda: [side.board.read()], workers):
        run_worker(settings, 0, is_stopping, side)
    return 0


def _run_processes(settings: Settings, count: int, is_stopping: Callable[[], bool]) -> int:
    snapshots, workers = WorkerSnapshots(), ChildWorkers()
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
    broker = BrokerAccess(settings)
    calls = Calls(
        settings.topics.ingress,
        settings.log.level,
        settings.release,
        read_statuses,
        workers,
        broker,
    )
    snapshots = Snapshots(registry, read_statuses, workers)
    streams = EventStreams(snapshots.make, wall_clock_ms)
    letters = LetterCalls(settings.topics, KafkaLetters(settings))
    traces = TraceCalls(KafkaTraces(settings))
    api = AdminApi(settings.admin, calls, letters, traces, streams)
    with (
        closing(letters),
        closing(AdminServer(settings.admin, registry, read_statuses, api)) as server,
    ):
        log.info(
            "proxy started",
            broker=settings.bootstrap_servers,
            admin_port=server.port,
            page=page_address(settings.admin.host, server.port),
            workers=count,
        )
        yield
