"""Counts what is read, each record once in this process."""

import time
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

import structlog

from proxy.records.message import IngressPartition, Message
from proxy.requests.parsed import AskedFor, ParsedBatch
from proxy.telemetry.retry_metrics import RetryMetrics
from proxy.telemetry.target_metrics import TargetMetrics

LONG_PAST_MS: Final = 366 * 86_400_000
WARN_EVERY_S: Final = 60.0

log = structlog.get_logger(__name__)


class Intake:
    """Outlives sessions: what a session had read, and not committed, the next one reads again."""

    def __init__(self, targets: TargetMetrics, retries: RetryMetrics) -> None:
        self._targets, self._retries = targets, retries
        self._upto: dict[IngressPartition, int] = {}
        self._warned_s = -WARN_EVERY_S

    def count(
        self, ingress: IngressPartition, messages: Sequence[Message], batch: ParsedBatch
    ) -> None:
        """The first of `batch`, as many as there are `messages`, were read."""
        upto, first = self._upto.get(ingress, 0), 0
        if messages[0].offset() < upto:
            first = bisect_left(messages, upto, key=lambda message: message.offset())
        if first == len(messages):
            return
        self._upto[ingress] = messages[-1].offset() + 1
        asked = batch.asked(first, len(messages))
        if asked.targets:
            self._warn_of_past(asked)
            self._targets.ingested(asked.targets, asked.delays_ms)
        if asked.retries:
            self._retries.ingested(asked.retries)

    def _warn_of_past(self, asked: AskedFor) -> None:
        """Name a target whose records were due more than a year before they were written."""
        first_ms = min(asked.delays_ms)
        now_s = time.monotonic()
        if first_ms < -LONG_PAST_MS and now_s - self._warned_s >= WARN_EVERY_S:
            self._warned_s = now_s
            log.warning(
                "due more than a year before the record was written, so delivered at once: "
                "timer-deliver-at takes milliseconds, not seconds",
                target=asked.targets[asked.delays_ms.index(first_ms)],
                remedy="mend the producer; `max_past: 366d` makes dead letters of such records",
            )
