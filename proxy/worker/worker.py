"""One worker: sessions with the broker, one after the other."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from typing import Final

import structlog
from confluent_kafka import KafkaException

from proxy.clock import Clock
from proxy.config.settings import Settings
from proxy.publishing.errors import SessionLost
from proxy.worker.admin_side import AdminSide
from proxy.worker.session_losses import SessionLosses
from proxy.worker.session_opening import open_session
from storage.errors import StorageError

SWITCH_S: Final = 0.0005
"""How soon the thread that waits for commits gets its turn; Python's own 5 ms are a commit's
length."""

log = structlog.get_logger(__name__)


def run_worker(
    settings: Settings, worker: int, is_stopping: Callable[[], bool], side: AdminSide
) -> None:
    """Sessions one after the other until told to stop.

    Raises ProxyError where a person has to act: another process of the same name, say.
    """
    sys.setswitchinterval(SWITCH_S)
    gc.disable()  # the hot path makes no cycles, and a full collection over a shard takes long
    clock = Clock(settings.clock.max_step_ms)
    losses = SessionLosses(f"{settings.instance_name}-{worker}")
    while not is_stopping():
        started_s = time.monotonic()
        try:
            open_session(settings, worker, clock, side).run(is_stopping)
        except (SessionLost, KafkaException, StorageError) as lost:
            side.show_lost_session()
            log.warning("session lost: shards are recovered from the broker", why=str(lost))
            time.sleep(losses.backoff_s(lost, time.monotonic() - started_s))
        gc.collect()
