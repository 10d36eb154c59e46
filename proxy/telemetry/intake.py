"""Counts what is read, each record once in this process."""

from bisect import bisect_left
from collections.abc import Sequence

from proxy.records.message import IngressPartition, Message
from proxy.requests.parsed import ParsedBatch
from proxy.telemetry.retry_metrics import RetryMetrics
from proxy.telemetry.target_metrics import TargetMetrics


class Intake:
    """Outlives sessions: what a session had read, and not committed, the next one reads again."""

    def __init__(self, targets: TargetMetrics, retries: RetryMetrics) -> None:
        self._targets, self._retries = targets, retries
        self._upto: dict[IngressPartition, int] = {}

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
            self._targets.ingested(asked.targets, asked.delays_ms)
        if asked.retries:
            self._retries.ingested(asked.retries)
