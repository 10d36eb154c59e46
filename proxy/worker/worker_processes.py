"""Several workers, each a process of its own, under one parent with one admin port.

The parent does no work: it starts a worker that has died anew, shows all of them outside, and
passes on the order to stop. A worker never outlives its parent.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, Final

import structlog

from proxy.admin.workers import ChildWorkers, QueryReceiver
from proxy.config.settings import Settings
from proxy.errors import ProxyError
from proxy.logs import configure_logs
from proxy.session.admin_side import AdminSide
from proxy.worker.stop_signals import stop_signals
from proxy.worker.worker import run_worker
from proxy.worker.worker_snapshots import Snapshot, SnapshotSender, WorkerSnapshots

STOP_WITHIN_S: Final = 30.0
RESTART_AFTER_S: Final = 1.0
PARENT_GONE: Final = 70

log = structlog.get_logger(__name__)


class WorkerProcesses:
    """The children of one `run`, by worker number."""

    def __init__(
        self, settings: Settings, count: int, snapshots: WorkerSnapshots, workers: ChildWorkers
    ) -> None:
        self._settings, self._count = settings, count
        self._snapshots, self._workers = snapshots, workers
        self._spawn = multiprocessing.get_context("spawn")
        self._children: dict[int, SpawnProcess] = {}

    def run(self, is_stopping: Callable[[], bool]) -> int:
        """Keep all workers running until told to stop, or one refuses; the exit code.

        No worker outlives this call, whatever it raises."""
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
        """Start what has died anew; the exit code of a worker that has refused to go on."""
        for worker, child in self._children.items():
            if child.exitcode is None:
                continue
            if child.exitcode > 0 and child.exitcode != PARENT_GONE:
                return child.exitcode
            log.error("worker died; it is started anew", worker=worker, exit_code=child.exitcode)
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
    """One worker process; ends with the exit code of the error that a person must act on."""
    _end_with_parent()
    configure_logs(settings.log.level, settings.log.format)
    structlog.contextvars.bind_contextvars(worker=worker)
    side = AdminSide.of_new_worker(settings.admin.targets_shown)
    QueryReceiver(queries_in, side.mailbox)
    sender = SnapshotSender(snapshots_out, side.metrics.registry, side.board.read)
    try:
        with stop_signals() as is_stopping:
            run_worker(settings, worker, is_stopping, side)
    except ProxyError as error:
        log.error("worker refuses to go on", why=str(error))
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
