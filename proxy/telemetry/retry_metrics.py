"""How often the records of each consumer group have failed."""

import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from proxy.telemetry.bounded_names import BoundedNames

ATTEMPTS_SHOWN: Final = 16
"""As many as the proxy makes unless it is told otherwise."""
BEYOND: Final = f"{ATTEMPTS_SHOWN + 1}+"


class RetryMetrics(Collector):
    """Counts retries by group and attempt: the first `most` groups that are met have series of
    their own, all others share theirs."""

    def __init__(self, most: int) -> None:
        self._names = BoundedNames(most)
        self._counts: Counter[tuple[int, int]] = Counter()
        self._lock = threading.Lock()

    def ingested(self, retries: Iterable[tuple[str, int]]) -> None:
        """Consumers of these groups have sent records back, each after so many failures."""
        for (group, attempt), count in Counter(retries).items():
            with self._lock:
                place = self._names.number(group), min(attempt, ATTEMPTS_SHOWN + 1)
                self._counts[place] += count

    def collect(self) -> Iterator[Metric]:
        """Each attempt of each group, from the group's first on: a series that begins with its
        first count hides that count from `increase`."""
        family = CounterMetricFamily(
            "delay_proxy_retry_attempts",
            "Records that a consumer has sent back, by its group and by how often it has failed.",
            labels=["group", "attempt"],
        )
        with self._lock:
            groups, counts = self._names.by_number(), dict(self._counts)
        for number, group in groups.items():
            for attempt in range(1, ATTEMPTS_SHOWN + 2):
                label = BEYOND if attempt > ATTEMPTS_SHOWN else str(attempt)
                family.add_metric([group, label], counts.get((number, attempt), 0))
        yield family
