"""What transactions have ended, as metrics; dead letters are logged, too."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import structlog

from proxy.scheduling.batch import Batch, ResolvedBatch
from proxy.telemetry.metrics import Metrics
from storage.store import dues_of, targets_of

log = structlog.get_logger(__name__)


class TransactionMetrics:
    """Counts transactions, and what became of the records in them."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def aborted(self, seconds: float) -> None:
        """One was aborted for good, after so long."""
        self._metrics.count_transaction("aborted", seconds)

    def committed(
        self, batches: Iterable[Batch | ResolvedBatch], seconds: float, now_ms: int
    ) -> None:
        """One was committed, after so long."""
        self._metrics.count_transaction("committed", seconds)
        for batch in batches:
            if batch.deliveries:
                lateness_ms = now_ms - dues_of(batch.deliveries)
                self._metrics.count_deliveries(targets_of(batch.deliveries), lateness_ms)
            self._metrics.targets.ended(_ends_by_target(batch))
            self._metrics.count_outcomes(
                [outcome.what for outcome in batch.outcomes] + [hop.what for hop in batch.hops]
            )
            if batch.dead_letters:
                reasons = Counter(letter.reason.code for letter in batch.dead_letters)
                self._metrics.count_dead_letters(reasons)
                _log_dead_letters(batch, reasons)


def _ends_by_target(batch: Batch | ResolvedBatch) -> Iterator[tuple[str | None, str]]:
    yield from ((outcome.target, outcome.what) for outcome in batch.outcomes)
    yield from ((hop.delivery.target, hop.what) for hop in batch.hops)
    yield from ((letter.target, letter.outcome) for letter in batch.dead_letters)


def _log_dead_letters(batch: Batch | ResolvedBatch, reasons: Mapping[str, int]) -> None:
    """One line per transaction and reason, with the first record as an example."""
    for code, count in reasons.items():
        example = next(letter for letter in batch.dead_letters if letter.reason.code == code)
        log.warning(
            "dead letters",
            reason=code,
            count=count,
            first=batch.ingress.origin(example.offset),
            detail=example.reason.detail,
        )
