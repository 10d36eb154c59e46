"""One worker: sessions with the broker, one after the other, until a signal says stop."""

import gc
import shutil
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Final

import structlog
from confluent_kafka import KafkaException

from proxy.clock import Clock
from proxy.config.disk_reserve import DiskReserve
from proxy.config.settings import Settings
from proxy.dispatch.refusals import Refusals
from proxy.errors import BrokerRefused, ClientUnusable, InstanceConflict, ProxyError
from proxy.kafka.access.rights import log_missing_rights
from proxy.kafka.client_settings import common_config
from proxy.kafka.group.owners import ask_in_thread
from proxy.publishing.errors import ClientStuck, SessionLost
from proxy.publishing.throttling import Throttling
from proxy.session.admin_side import AdminSide
from proxy.session.session_opening import open_session
from proxy.tracing.tracer import open_tracer
from proxy.worker.disk_room import DiskRoom
from storage.errors import StorageError

BACKOFF_S: Final = (0.0, 0.2, 0.5, 1.0, 2.0, 5.0)
STEADY_AFTER_S: Final = 30.0
STUCK_AT_MOST: Final = 20
"""Each leaves a thread and a producer behind until the process ends."""
FENCED_AT_MOST: Final = 5
"""Short sessions lost to fencing, with none lost otherwise in between, before it is taken for
another process of the same name."""
DEFECTS_AT_MOST: Final = 5
"""Short sessions in a row that ended by an error which nobody foresaw, the client library's among
them: memory is dropped with the session, and the broker knows all."""
LOSSES: Final = (SessionLost, KafkaException, StorageError)
ONCE_RUN: Final = (*LOSSES, BrokerRefused)
"""A right that was taken away from a worker is waited for; one that it never had ends it."""
SWITCH_S: Final = 0.0005
"""How soon the thread that waits for commits gets its turn; Python's own 5 ms are a commit's
length."""

log = structlog.get_logger(__name__)


class SessionLosses:
    """The lost sessions of one worker; `instance` is its name in the consumer group."""

    def __init__(self, instance: str) -> None:
        self._instance = instance
        self._in_a_row = self._fenced = self._stuck = self._defects = 0

    def backoff_s(self, lost: Exception, lasted_s: float) -> float:
        """One more is lost, after `lasted_s`: how long to wait before the next.

        Raises InstanceConflict, ClientUnusable; and a defect that comes again and again.
        """
        is_first = lasted_s > STEADY_AFTER_S
        self._in_a_row = 1 if is_first else self._in_a_row + 1
        self._stuck += isinstance(lost, ClientStuck)
        is_defect = not isinstance(lost, ONCE_RUN)
        self._defects = int(is_defect) if is_first else self._defects + is_defect
        if self._defects > DEFECTS_AT_MOST:
            raise lost
        is_fenced = "fenced" in str(lost).lower()
        self._fenced = int(is_fenced) if is_first or not is_fenced else self._fenced + 1
        if self._fenced >= FENCED_AT_MOST:
            raise InstanceConflict(self._instance, str(lost))
        if self._stuck > STUCK_AT_MOST:
            raise ClientUnusable(self._stuck) from lost
        return BACKOFF_S[min(self._in_a_row, len(BACKOFF_S)) - 1]


def run_worker(
    settings: Settings, worker: int, is_stopping: Callable[[], bool], side: AdminSide
) -> None:
    """Sessions one after the other until told to stop.

    Raises ProxyError where a person has to act: another process of the same name, say.
    """
    sys.setswitchinterval(SWITCH_S)
    gc.disable()  # the hot path makes no cycles, and a full collection over a shard takes long
    clock, refusals = Clock(settings.clock.max_step_ms), Refusals()
    throttling = Throttling(side.metrics.count_throttled)
    losses = SessionLosses(f"{settings.instance_name}-{worker}")
    room = _disk_room(settings, side)
    with open_tracer(settings, side.metrics) as tracer:
        trace = None if tracer is None else tracer.committed
        losing: tuple[type[Exception], ...] = LOSSES
        while not is_stopping():
            room.wait(is_stopping)
            started_s = time.monotonic()
            try:
                open_session(settings, worker, clock, side, trace, refusals, throttling).run(
                    lambda: is_stopping() or room.must_leave(is_held=side.board.read().is_disk_held)
                )
            except losing as lost:
                losing = ONCE_RUN
                side.show_lost_session()
                log.warning("session lost: shards are recovered from the broker", why=str(lost))
                log_missing_rights(settings, str(lost))
                time.sleep(losses.backoff_s(lost, time.monotonic() - started_s))
            except ProxyError:
                raise
            except Exception as defect:
                side.show_lost_session()
                log.exception("session ended by a defect, please report it", why=repr(defect))
                time.sleep(losses.backoff_s(defect, time.monotonic() - started_s))
            gc.collect()


def _disk_room(settings: Settings, side: AdminSide) -> DiskRoom:
    def disk_space() -> tuple[int, int]:
        size_bytes, _used, free_bytes = shutil.disk_usage(settings.data_dir)
        return size_bytes, free_bytes

    return DiskRoom(
        settings.instance_name,
        settings.data_dir,
        DiskReserve(settings.disk_reserve_bytes),
        disk_space,
        partial(ask_in_thread, common_config(settings), settings.group_id),
        side.board.heartbeat,
    )
