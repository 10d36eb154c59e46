"""A Prometheus histogram that takes a whole transaction's values at once.

`prometheus_client.Histogram` takes one value per call, about a microsecond each; the lateness of
10,000 records delivered in one transaction must not cost 10 ms.
"""

import threading
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector


class BatchHistogram(Collector):
    """Counts values in ms into buckets that are shown in seconds, as Prometheus wants them.

    `bounds_ms` are the buckets' upper bounds, rising, each inclusive; one more takes the rest.
    """

    def __init__(self, name: str, documentation: str, bounds_ms: Sequence[int]) -> None:
        self._name = name
        self._documentation = documentation
        self._bounds_ms: npt.NDArray[np.int64] = np.asarray(bounds_ms, dtype=np.int64)
        self._names = [f"{bound / 1000:g}" for bound in bounds_ms] + ["+Inf"]
        self._counts: npt.NDArray[np.int64] = np.zeros(len(self._names), dtype=np.int64)
        self._sum_ms = 0
        self._lock = threading.Lock()

    def observe_ms(self, values_ms: "Sequence[int] | npt.NDArray[np.int64]") -> None:
        """Count each value; thread-safe."""
        values = np.asarray(values_ms, dtype=np.int64)
        buckets = np.searchsorted(self._bounds_ms, values, side="left")
        counts = np.bincount(buckets, minlength=len(self._names))
        total_ms = int(values.sum())
        with self._lock:
            self._counts += counts
            self._sum_ms += total_ms

    def collect(self) -> Iterator[Metric]:
        """One histogram family, its buckets cumulative."""
        with self._lock:
            cumulative = np.cumsum(self._counts).tolist()
            sum_ms = self._sum_ms
        family = HistogramMetricFamily(self._name, self._documentation)
        buckets = list(zip(self._names, map(float, cumulative), strict=True))
        family.add_metric([], buckets, sum_ms / 1000)
        yield family
