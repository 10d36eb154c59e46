"""When to stop fetching: while records of a partition wait, or while the disk is full."""

from typing import Final

import structlog

from proxy.kafka.ingress import Ingress
from proxy.scheduling.shard import Shard
from storage.errors import StorageFull

FULL_RETRY_MS: Final = 1_000

log = structlog.get_logger(__name__)


class BackPressure:
    """Pauses and resumes the partitions of `ingress`."""

    def __init__(self, ingress: Ingress) -> None:
        self._ingress = ingress
        self._paused: set[int] = set()
        self._disk_full_until_ms = 0

    def apply(self, partition: int, shard: Shard) -> None:
        """Pause a partition whose records have to wait, or that the disk cannot take."""
        must_wait = bool(shard.waiting) or self._disk_full_until_ms > 0
        if not must_wait:
            self.resume(partition)
        elif partition not in self._paused:
            self._ingress.pause(partition)
            self._paused.add(partition)
            if shard.waits_for_clock:
                log.warning("clock behind the watermark: records wait", partition=partition)

    def resume(self, partition: int) -> None:
        """Fetch it again. To be called for partitions given up, too: the client library remembers
        that one is paused even when it goes and comes back."""
        if partition in self._paused:
            self._ingress.resume(partition)
            self._paused.discard(partition)

    def may_write(self, now_ms: int) -> bool:
        """False for a moment after the disk was full."""
        return now_ms >= self._disk_full_until_ms

    def disk_full(self, full: StorageFull, now_ms: int) -> None:
        """The stores could not write: nothing is fetched until they can."""
        log.error("local disk full: reading of the ingress is held", why=str(full))
        self._disk_full_until_ms = now_ms + FULL_RETRY_MS

    def disk_has_space(self) -> None:
        """The stores have written what they had to."""
        self._disk_full_until_ms = 0
