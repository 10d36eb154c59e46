"""Metrics of records that ended, but not by delivery, and log lines for some of these records."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import structlog

from proxy.protocol.outcomes import PURGED_BY, Outcome
from proxy.protocol.position import Position
from proxy.protocol.times import LATEST_MS
from proxy.scheduling.batch import Batch
from proxy.scheduling.shard import Shard
from proxy.telemetry.metrics import Metrics

MOST_COUNTED: Final = 1_000
"""Records are counted for at most this many purges. A count stays if its shard leaves the worker.
"""

log = structlog.get_logger(__name__)


def count_ends(metrics: Metrics, batch: Batch[Any]) -> None:
    """Count the outcomes, hops and dead letters of a committed batch. Log the dead letters."""
    metrics.targets.ended(_ends_by_target(batch))
    for hop in batch.hops:
        if hop.failures and hop.not_before_ms is not None:
            target, due_ms = hop.delivery.target, hop.delivery.due_ms
            metrics.refused.put_off(target, hop.detail, due_ms, hop.not_before_ms)
    kinds = [outcome.what for outcome in batch.outcomes]
    kinds += [hop.what for hop in batch.hops]
    for kind, count in Counter(kinds).items():
        metrics.outcomes.labels(kind).inc(count)
    if batch.dead_letters:
        reasons = Counter(letter.reason.code for letter in batch.dead_letters)
        metrics.count_dead_letters(reasons)
        _log_dead_letters(batch, reasons)


def _ends_by_target(batch: Batch[Any]) -> Iterator[tuple[str | None, str]]:
    yield from ((outcome.target, outcome.what) for outcome in batch.outcomes)
    yield from ((hop.delivery.target, hop.what) for hop in batch.hops)
    yield from ((letter.target, letter.outcome) for letter in batch.dead_letters)


def _log_dead_letters(batch: Batch[Any], reasons: Mapping[str, int]) -> None:
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


class PurgeLog:
    """Counts and logs purges, and the records that they have ended."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._purged: dict[str, int] = {}
        """Records ended by each purge that is not done, at most MOST_COUNTED purges."""

    def note(self, shard: Shard, position: Position, outcomes: Sequence[Outcome]) -> None:
        """Note a committed transaction and its position, before the shard confirms them."""
        purges, before = shard.purges, shard.position
        for offset, purge in purges.between(before.next_offset, position.next_offset):
            origin = shard.ingress.origin(offset)
            self._purged[origin] = 0
            if len(self._purged) > MOST_COUNTED:
                del self._purged[next(iter(self._purged))]
            self._metrics.purges.labels("taken-in").inc()
            log.warning(
                "purge read: pending records for these targets will not be delivered",
                purge=origin,
                targets=purge.targets,
                due_from=purge.due_from_ms or None,
                due_to=purge.due_to_ms if purge.due_to_ms < LATEST_MS else None,
            )
        details = Counter(o.detail for o in outcomes if o.detail.startswith(PURGED_BY))
        self._metrics.purged_records.inc(details.total())
        for detail, records in details.items():
            if (origin := detail.removeprefix(PURGED_BY)) in self._purged:
                self._purged[origin] += records
        for offset, _ in purges.between(before.purged_below, position.purged_below):
            origin = shard.ingress.origin(offset)
            self._metrics.purges.labels("done").inc()
            log.info("purge done", purge=origin, records=self._purged.pop(origin, None))
