"""One worker: it runs sessions one after the other until it is told to stop."""

import gc
import sys
import time
import zlib
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Final

import structlog
from confluent_kafka import KafkaException

from proxy.clock import Clock
from proxy.config.machine import DiskReserve
from proxy.config.settings import Settings
from proxy.config.values import shown_size
from proxy.dispatch.refusals import Refusals
from proxy.errors import (
    BrokerRefused,
    ClientUnusable,
    InstanceConflict,
    ProxyError,
    SecretUnreadable,
)
from proxy.kafka.access import log_missing_rights
from proxy.kafka.client_settings import common_config
from proxy.kafka.group import GroupOwners, OwnersUnknown, ask_in_thread
from proxy.publishing.failures import ClientStuck, SessionLost
from proxy.publishing.throttling import Throttling
from proxy.recovery.local_state import size_and_free_bytes
from proxy.session.reporter import AdminSide
from proxy.session.session import open_session
from proxy.tracing.tracer import open_tracer
from storage.errors import StorageError, StorageFull, why_and_remedy
from storage.folder import Files
from storage.options import new_store_bytes

log = structlog.get_logger(__name__)


# A worker without disk space (`disk_reserve`) reads nothing, so it leaves its partitions to other
# instances. An instance that is alone stays and delivers due records.

LOOK_EVERY_S: Final = 1.0
ASK_EVERY_S: Final = 10.0
SAY_EVERY_S: Final = 60.0
LEAVE_AFTER_S: Final = 120.0
SPREAD_S: Final = 120
"""Instances whose disks fill together leave at different times, spread over this interval."""
ALONE_FACTOR: Final = 10
"""An instance that was alone may begin on a full disk. Then it waits this many times as
long before it leaves."""
PROBE: Final = ".room"
PROBE_BYTES: Final = 4096


class DiskRoom:
    """Decides whether one worker of `instance` may serve. `ask` returns the group's members.

    A new partition takes `partition_bytes` of the disk at once."""

    def __init__(
        self,
        instance: str,
        data_dir: Path,
        reserve: DiskReserve,
        partition_bytes: int,
        disk_space: Callable[[], tuple[int, int]],
        ask: Callable[[], Future[GroupOwners]],
        heartbeat: Callable[[], None],
        now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._instance, self._data_dir = instance, data_dir
        self._reserve, self._disk_space = reserve, disk_space
        self._probe_bytes = max(PROBE_BYTES, partition_bytes)
        self._ask, self._heartbeat = ask, heartbeat
        self._now_s, self._sleep = now_s, sleep
        self._leave_after_s = LEAVE_AFTER_S + zlib.crc32(instance.encode()) % SPREAD_S
        self._answer: Future[GroupOwners] | None = None
        self._has_others = False
        self._asked_s = self._said_s = self._looked_s = -SAY_EVERY_S
        self._held_since_s: float | None = None
        self._serves_as_alone = False

    def wait(self, is_stopping: Callable[[], bool]) -> None:
        """Return once there is room, no other instance is in the group, or the worker stops."""
        self._held_since_s, self._serves_as_alone = None, False
        if self._shortage() is None:
            return
        while not is_stopping() and (shortage := self._shortage()) is not None:
            if self._has_new_answer() and not self._has_others:
                self._serves_as_alone = True
                return
            if self._has_others and self._now_s() >= self._said_s + SAY_EVERY_S:
                self._said_s = self._now_s()
                log.error(
                    "the disk is full: this instance leaves its partitions to other instances",
                    why=shortage[0],
                    remedy=shortage[1],
                )
            self._heartbeat()
            self._sleep(LOOK_EVERY_S)

    def must_leave(self, *, is_full: bool) -> bool:
        """Return whether another instance should serve, because a full disk has paused reading for
        long."""
        now_s = self._now_s()
        if now_s < self._looked_s + LOOK_EVERY_S:
            return False
        self._looked_s = now_s
        if not is_full:
            self._held_since_s, self._serves_as_alone = None, False
            return False
        if self._held_since_s is None:
            self._held_since_s = now_s
        factor = ALONE_FACTOR if self._serves_as_alone else 1
        if now_s < self._held_since_s + self._leave_after_s * factor:
            return False
        return self._has_new_answer() and self._has_others and self._shortage() is not None

    def _shortage(self) -> tuple[str, str] | None:
        try:
            size_bytes, free_bytes = self._disk_space()
            self._reserve.observe(size_bytes, free_bytes)
            if not self._reserve.is_short:
                probe = self._data_dir / PROBE
                try:
                    with probe.open("wb") as file:
                        file.write(bytes(PROBE_BYTES))
                        Files().allocate(file.fileno(), self._probe_bytes)
                finally:
                    probe.unlink(missing_ok=True)
                return None
        except OSError as error:
            return why_and_remedy(self._data_dir, error)
        free, reserve = shown_size(free_bytes), shown_size(self._reserve.of(size_bytes))
        return (
            f"{free} are free, less than disk_reserve ({reserve})",
            f"Free some space on the disk of {self._data_dir}, or lower `disk_reserve`",
        )

    def _has_new_answer(self) -> bool:
        """Return whether a new answer about the group's members has come. Ask at intervals."""
        if self._answer is None and self._now_s() >= self._asked_s + ASK_EVERY_S:
            self._asked_s, self._answer = self._now_s(), self._ask()
        if self._answer is None or not self._answer.done():
            return False
        answer, self._answer = self._answer, None
        try:
            self._has_others = answer.result().has_others(self._instance)
        except OwnersUnknown as unknown:
            log.debug("members of the group not known", why=str(unknown))
            return False
        return True


BACKOFF_S: Final = (0.0, 0.2, 0.5, 1.0, 2.0, 5.0)
STEADY_AFTER_S: Final = 30.0
STUCK_AT_MOST: Final = 20
"""After more stuck clients than this the process ends, because each stuck one keeps a thread."""
FENCED_AT_MOST: Final = 5
"""After this many fenced short sessions in a row, another process must have the same name."""
DEFECTS_AT_MOST: Final = 5
"""After more defects in a row than this the worker ends. A retry is safe, because each session
rebuilds its shards from the broker."""
LOSSES: Final = (SessionLost, KafkaException, StorageError)
ONCE_RUN: Final = (*LOSSES, BrokerRefused, SecretUnreadable)
"""After its first lost session a worker also waits for a missing right, and for the file of a
secret. Before that, a missing right or file ends the worker."""
SWITCH_S: Final = 0.0005
"""Python's thread switch interval. The default of 5 ms would double the duration of commits."""


class SessionLosses:
    """The lost sessions of one worker. `instance` is the worker's name in the consumer group."""

    def __init__(self, instance: str) -> None:
        self._instance = instance
        self._in_a_row = self._fenced = self._stuck = self._defects = 0

    def backoff_s(self, lost: Exception, lasted_s: float) -> float:
        """Return the time to wait before the next session. Raises InstanceConflict, ClientUnusable,
        and a defect that repeats."""
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
    """Run sessions one after the other until told to stop.

    Raises ProxyError if a person must act.
    """
    sys.setswitchinterval(SWITCH_S)
    gc.disable()  # the loop makes no reference cycles, and collecting a whole shard takes long
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
                    lambda: is_stopping() or room.must_leave(is_full=side.board.read().is_disk_full)
                )
            except losing as lost:
                losing = ONCE_RUN
                why = _said(lost)
                side.show_lost_session(why, is_disk_full=isinstance(lost, StorageFull))
                log.warning("session lost: shards are recovered from the broker", why=why)
                log_missing_rights(settings, str(lost))
                time.sleep(losses.backoff_s(lost, time.monotonic() - started_s))
            except ProxyError:
                raise
            except Exception as defect:
                side.show_lost_session("a defect, which the log has")
                log.exception("session ended by a defect. Please report it", why=repr(defect))
                time.sleep(losses.backoff_s(defect, time.monotonic() - started_s))
            gc.collect()


def _said(lost: Exception) -> str:
    return lost.args[0].str() if isinstance(lost, KafkaException) else str(lost)


def _disk_room(settings: Settings, side: AdminSide) -> DiskRoom:
    return DiskRoom(
        settings.instance_name,
        settings.data_dir,
        DiskReserve(settings.disk_reserve_bytes),
        new_store_bytes(settings.store, settings.wheel.slots),
        partial(size_and_free_bytes, settings.data_dir),
        partial(ask_in_thread, common_config(settings), settings.group_id),
        side.board.heartbeat,
    )
