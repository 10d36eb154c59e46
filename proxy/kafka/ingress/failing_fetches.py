"""Fetches that fail at the same place again and again: nothing behind that place is read."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import structlog

STUCK_AFTER: Final = 3
"""This many failures at one offset are no accident of the network."""
OVER_AFTER_S: Final = 60.0
"""After this time without a failure the place counts as readable again."""
WARN_EVERY_S: Final = 60.0
REMEDY: Final = (
    "docs/operations/runbook.md#delayproxyshardunreadable: have it skipped with "
    "`kafka-delay-proxy skip --partition {partition} --offset {offset}`"
)

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class FailingFetch:
    """Where the fetches of a partition fail, and why."""

    offset: int
    error: str
    failures: int
    failed_s: float
    warned_s: float | None = None


class FailingFetches:
    """By partition. Times are of the monotonic clock."""

    def __init__(self) -> None:
        self._failing: dict[int, FailingFetch] = {}

    @property
    def stuck(self) -> Mapping[int, FailingFetch]:
        """The partitions that have failed often enough to be stuck."""
        found = self._failing.items()
        return {partition: one for partition, one in found if one.failures >= STUCK_AFTER}

    def failed(self, partition: int, offset: int, error: str, now_s: float) -> None:
        """Note a failed fetch. A stuck partition is logged once a minute."""
        one = self._failing.get(partition)
        if one is None or one.offset != offset:
            one = self._failing[partition] = FailingFetch(offset, error, 0, now_s)
        one.error, one.failures, one.failed_s = error, one.failures + 1, now_s
        is_due = one.warned_s is None or now_s - one.warned_s >= WARN_EVERY_S
        if one.failures >= STUCK_AFTER and is_due:
            one.warned_s = now_s
            log.error(
                "the ingress cannot be read on: what is written behind this place waits unread",
                partition=partition,
                offset=offset,
                error=error,
                remedy=REMEDY.format(partition=partition, offset=offset),
            )

    def passed(self, partitions: Iterable[int]) -> None:
        """Forget partitions that were read on, or that are owned no more."""
        for partition in partitions:
            one = self._failing.pop(partition, None)
            if one is not None and one.failures >= STUCK_AFTER:
                log.info("the ingress is read on", partition=partition, failed_at=one.offset)

    def expire(self, fetched: Iterable[int], now_s: float) -> None:
        """Forget those of the fetched partitions that have not failed for OVER_AFTER_S."""
        if self._failing:
            old = [
                partition
                for partition in fetched
                if partition in self._failing
                and now_s - self._failing[partition].failed_s > OVER_AFTER_S
            ]
            self.passed(old)
