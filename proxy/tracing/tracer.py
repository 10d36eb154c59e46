"""The tracer of a worker."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from confluent_kafka import Consumer

from proxy.config.settings import Settings
from proxy.kafka.client_settings import lookup_config
from proxy.kafka.reader import IngressLookup
from proxy.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from proxy.tracing.export import SpanQueue


@contextmanager
def open_tracer(settings: Settings, metrics: Metrics) -> "Iterator[SpanQueue | None]":
    """Yield a queue of spans while a worker runs, or None without `tracing.enabled`."""
    if not settings.tracing.enabled:
        yield None
        return
    from proxy.tracing.export import SpanQueue

    lookup = IngressLookup(
        lambda: Consumer(lookup_config(settings)), settings.topics.ingress, heartbeat=lambda: None
    )
    queue = SpanQueue(lookup.read, metrics.count_traced)
    try:
        yield queue
    finally:
        queue.close()
