"""The loop's longest steps, for Prometheus."""

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from proxy.telemetry.turn_log import TurnLog
from proxy.telemetry.turn_summary import step_seconds


class TurnMetrics(Collector):
    """Made at each scrape of the turns of the last minute."""

    def __init__(self, turns: TurnLog) -> None:
        self._turns = turns

    def collect(self) -> Iterator[Metric]:
        """A gauge for each step."""
        family = GaugeMetricFamily(
            "delay_proxy_turn_longest_seconds",
            "The longest that each step of the loop took within the last minute.",
            labels=["step"],
        )
        for step, took_s in step_seconds(self._turns.read().rows).items():
            family.add_metric([step], float(took_s.max()))
        yield family
