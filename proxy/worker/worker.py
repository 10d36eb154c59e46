"""Runs the proxy: one worker in this process, or several in processes of their own."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Final

import structlog
from confluent_kafka import KafkaException
from prometheus_client import CollectorRegistry

from proxy.admin import AdminApi, AdminServer
from proxy.admin.calls import Calls
from proxy.admin.control import Control
from proxy.admin.questions import Desk
from proxy.admin.workers import ChildWorkers, ThisWorker, Workers
from proxy.clock import Clock
from proxy.config.settings import Settings
from proxy.errors import ClientUnusable, InstanceConflict
from proxy.extras import require_store
from proxy.kafka.topics import ensure_topics
from proxy.publishing.errors import ClientStuck, SessionLost
from proxy.recovery.local_state import held_data_dir
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.status import Status, StatusBoard
from proxy.worker.session import Session
from proxy.worker.stop_signals import stop_signals
from proxy.worker.worker_processes import WorkerProcesses
from proxy.worker.worker_snapshots import WorkerSnapshots
from storage.errors import StorageError

BACKOFF_S: Final = (0.0, 0.2, 0.5, 1.0, 2.0, 5.0)
STEADY_AFTER_S: Final = 30.0
STUCK_AT_MOST: Final = 20
"""Each leaves a thread and a producer behind until the process ends."""
SWITCH_S: Final = 0.0005
"""How soon the thread that waits for commits gets its turn; Python's own 5 ms are a commit's
length."""
FENCED_AT_MOST: Final = 5
"""Sessions lost to fencing in a row before it is taken for another process of the same name."""

log = structlog.get_logger(__name__)


def run(settings: Settings) -> int:
    """Run the proxy until SIGTERM or SIGINT; the exit code."""
    require_store(settings.store)
    with held_data_dir(settings.data_dir), stop_signals() as is_stopping:
        ensure_topics(settings)
        run_all = _run_here if settings.workers == 1 else _run_processes
        exit_code = run_all(settings, is_stopping)
        log.info("proxy stopped")
    return exit_code


def run_worker(
    settings: Settings,
    worker: int,
    is_stopping: Callable[[], bool],
    metrics: Metrics,
    board: StatusBoard,
    desk: Desk,
) -> None:
    """Sessions one after the other until told to stop."""
    sys.setswitchinterval(SWITCH_S)
    gc.disable()  # the hot path makes no cycles, and a full collection over a shard takes long
    clock = Clock(settings.clock.max_step_ms)
    losses = stuck = 0
    while not is_stopping():
        started = time.monotonic()
        try:
            _one_session(settings, worker, clock, metrics, board, desk, is_stopping)
        except (SessionLost, KafkaException, StorageError) as lost:
            losses = 1 if time.monotonic() - started > STEADY_AFTER_S else losses + 1
            metrics.note_session_lost()
            _show_lost(board)
            log.warning("session lost: shards are recovered from the broker", why=str(lost))
            _refuse_conflict(settings, worker, lost, losses)
            stuck += isinstance(lost, ClientStuck)
            if stuck > STUCK_AT_MOST:
                raise ClientUnusable(stuck) from lost
            time.sleep(BACKOFF_S[min(losses, len(BACKOFF_S)) - 1])
        gc.collect()


def _run_here(settings: Settings, is_stopping: Callable[[], bool]) -> int:
    board = StatusBoard(time.monotonic())
    metrics, desk = Metrics(board.read), Desk()
    with _admin(settings, metrics.registry, lambda: [board.read()], ThisWorker(desk)) as admin:
        _say_started(settings, admin)
        run_worker(settings, 0, is_stopping, metrics, board, desk)
    return 0


def _run_processes(settings: Settings, is_stopping: Callable[[], bool]) -> int:
    shown, workers = WorkerSnapshots(), ChildWorkers()
    registry = CollectorRegistry()
    registry.register(shown)
    with _admin(settings, registry, shown.statuses, workers) as admin:
        _say_started(settings, admin)
        return WorkerProcesses(settings, run_worker, shown, workers).run(is_stopping)


@contextmanager
def _admin(
    settings: Settings,
    registry: CollectorRegistry,
    read_statuses: Callable[[], Sequence[Status]],
    workers: Workers,
) -> Iterator[AdminServer]:
    control = Control(settings)
    calls = Calls(settings.topics.ingress, settings.log.level, read_statuses, workers, control)
    api = AdminApi(settings.admin, calls)
    with closing(AdminServer(settings.admin, registry, read_statuses, api)) as server:
        yield server


def _say_started(settings: Settings, admin: AdminServer) -> None:
    log.info(
        "proxy started",
        broker=settings.bootstrap_servers,
        admin_port=admin.port,
        workers=settings.workers,
    )


def _one_session(
    settings: Settings,
    worker: int,
    clock: Clock,
    metrics: Metrics,
    board: StatusBoard,
    desk: Desk,
    is_stopping: Callable[[], bool],
) -> None:
    session = Session(settings, worker, clock, metrics, board, desk)
    try:
        session.run(is_stopping)
    except BaseException:
        session.abandon()
        raise


def _show_lost(board: StatusBoard) -> None:
    """The loop lives, and serves nothing until the next session has its shards."""
    paused = board.read().paused
    board.show(Status(heartbeat_monotonic=time.monotonic(), paused=paused))


def _refuse_conflict(settings: Settings, worker: int, lost: Exception, losses: int) -> None:
    if "fenced" in str(lost).lower() and losses >= FENCED_AT_MOST:
        raise InstanceConflict(f"{settings.instance_name}-{worker}", str(lost))
