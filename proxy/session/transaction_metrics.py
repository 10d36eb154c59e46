"""Metrics of the records that transactions have ended. Dead letters and purges are also logged."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import structlog

from proxy.protocol.outcomes import PURGED_BY, Outcome
from proxy.protocol.parsed import Purge
from proxy.protocol.position import Position
from proxy.protocol.times import LATEST_MS
from proxy.scheduling.batch import Batch, Hop
from proxy.scheduling.shard import Shard
from proxy.telemetry.metrics import Metrics
from storage.store import dues_of, targets_of

MOST_COUNTED: Final = 1_000
"""Limit for purges whose shard left before they were done."""

log = structlog.get_logger(__name__)


class TransactionMetrics:
    """Counts transactions and their records."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._purged: dict[str, int] = {}
        """Records ended by each purge that is not done, at most MOST_COUNTED purges."""

    def aborted(self, seconds: float) -> None:
        self._metrics.count_transaction("aborted", seconds)

    def committed(self, batches: Sequence[Batch], seconds: float, now_ms: int) -> None:
        self._metrics.count_transaction("committed", seconds)
        deliveries = [delivery for batch in batches for delivery in batch.deliveries]
        if deliveries:
            lateness_ms = now_ms - dues_of(deliveries)
            self._metrics.count_deliveries(targets_of(deliveries), lateness_ms)
        for batch in batches:
            if batch.outcomes or batch.hops or batch.dead_letters:
                self._metrics.targets.ended(_ends_by_target(batch))
                self._count_put_off(batch.hops)
                kinds = [outcome.what for outcome in batch.outcomes]
                kinds += [hop.what for hop in batch.hops]
                for kind, count in Counter(kinds).items():
                    self._metrics.outcomes.labels(kind).inc(count)
            if batch.dead_letters:
                reasons = Counter(letter.reason.code for letter in batch.dead_letters)
                self._metrics.count_dead_letters(reasons)
                _log_dead_letters(batch, reasons)

    def _count_put_off(self, hops: Sequence[Hop]) -> None:
        for hop in hops:
            if hop.failures and hop.not_before_ms is not None:
                delivery = hop.delivery
                self._metrics.refused.put_off(
                    delivery.target, hop.detail, delivery.due_ms, hop.not_before_ms
                )

    def count_purges(self, shard: Shard, position: Position, outcomes: Sequence[Outcome]) -> None:
        """Count the records that purges have ended, and log purges. `position` is committed
        already."""
        purges, before = shard.purges, shard.position
        for offset, purge in purges.between(before.next_offset, position.next_offset):
            self._tell_purge(shard.ingress.origin(offset), purge)
        self._count_purged(outcomes)
        for offset, _ in purges.between(before.purged_below, position.purged_below):
            origin = shard.ingress.origin(offset)
            self._metrics.purges.labels("done").inc()
            log.info("purge done", purge=origin, records=self._purged.pop(origin, None))

    def _tell_purge(self, origin: str, purge: Purge) -> None:
        self._purged[origin] = 0
        if len(self._purged) > MOST_COUNTED:
            del self._purged[next(iter(self._purged))]
        self._metrics.purges.labels("taken-in").inc()
        log.warning(
            "purge taken in: what waits for these targets is not delivered",
            purge=origin,
            targets=purge.targets,
            due_from=purge.due_from_ms or None,
            due_to=purge.due_to_ms if purge.due_to_ms < LATEST_MS else None,
        )

    def _count_purged(self, outcomes: Sequence[Outcome]) -> None:
        details = Counter(o.detail for o in outcomes if o.detail.startswith(PURGED_BY))
        self._metrics.purged_records.inc(details.total())
        for detail, records in details.items():
            origin = detail.removeprefix(PURGED_BY)
            if origin in self._purged:
                self._purged[origin] += records


def _ends_by_target(batch: Batch) -> Iterator[tuple[str | None, str]]:
    yield from ((outcome.target, outcome.what) for outcome in batch.outcomes)
    yield from ((hop.delivery.target, hop.what) for hop in batch.hops)
    yield from ((letter.target, letter.outcome) for letter in batch.dead_letters)


def _log_dead_letters(batch: Batch, reasons: Mapping[str, int]) -> None:
    """Log one line for each transaction and reason, with the first record as an example."""
    for code, count in reasons.items():
        example = next(letter for letter in batch.dead_letters if letter.reason.code == code)
        log.warning(
            "dead letters",
            reason=code,
            count=count,
            first=batch.ingress.origin(example.offset),
            detail=example.reason.detail,
        )
