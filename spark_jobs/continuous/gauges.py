"""The totals for Prometheus. Every name begins with `delay_proxy_audit_`."""

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from spark_jobs.continuous.state import Tally
from spark_jobs.continuous.totals import BUCKETS_MS, Totals
from spark_jobs.runtime.errors import AuditError
from spark_jobs.verdicts.verdict_names import MEANINGS, PENDING, VIOLATIONS

PREFIX = "delay_proxy_audit"


class Gauges(Collector):
    """The tally as metrics: none before the first one."""

    def __init__(self) -> None:
        self._tally: Tally | None = None

    def show(self, tally: Tally) -> None:
        """Show this tally from now on."""
        self._tally = tally

    def serve(self, host: str, port: int) -> None:
        """Answer on http://host:port/metrics, in a thread. Raises `AuditError`."""
        registry = CollectorRegistry()
        registry.register(self)
        try:
            start_http_server(port, host, registry)
        except OSError as error:
            raise AuditError(
                f"The metrics cannot be served on {host}:{port}: {error}.",
                "Name another --metrics-port, or 0 for none.",
            ) from None

    def collect(self) -> Iterator[Metric]:
        """The metrics, as Prometheus' library asks for them."""
        if self._tally is not None:
            yield from _families(self._tally)


def _families(tally: Tally) -> Iterator[Metric]:
    totals, horizon = tally.totals, tally.horizon
    yield _counts("verdicts", "Records by verdict.", totals.verdicts, MEANINGS)
    yield _counts("violations", "Violations by verdict.", totals.violations, VIOLATIONS)
    yield _lateness(totals)
    yield _gauge("pending", "Records read by the proxy that have not ended.", totals.pending)
    lag = sum(one.settled_end - one.next_offset for one in horizon.positions)
    yield _gauge("unread", "Ingress records the proxy has not read.", lag)
    yield _gauge("lost_offsets", "Ingress offsets deleted before the audit read them.", tally.lost)
    yield _gauge("overdue", "Records due for longer than allowed, not ended.", totals.overdue)
    seconds = tally.until_ms / 1000
    yield _gauge("audited_until_seconds", "Epoch seconds up to which all is judged.", seconds)


def _counts(name: str, text: str, found: Mapping[str, int], names: Iterable[str]) -> Metric:
    family = CounterMetricFamily(f"{PREFIX}_{name}", text, labels=["verdict"])
    for verdict in names:
        if verdict != PENDING:
            family.add_metric([verdict], found.get(verdict, 0))
    return family


def _lateness(totals: Totals) -> Metric:
    family = HistogramMetricFamily(f"{PREFIX}_lateness_seconds", "How late deliveries were.")
    buckets = [(str(one / 1000), totals.late_by.get(str(one), 0)) for one in BUCKETS_MS]
    family.add_metric(
        [], [*buckets, ("+Inf", totals.deliveries)], sum_value=totals.late_sum_ms / 1000
    )
    return family


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"{PREFIX}_{name}", text, value=value)
