"""The tracer of a worker."""

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer

from proxy.config.settings import Settings
from proxy.kafka.client_settings import lookup_config
from proxy.kafka.reader import IngressLookup
from proxy.telemetry.metrics import Metrics
from proxy.tracing.traced import Tracer


@contextmanager
def open_tracer(settings: Settings, metrics: Metrics) -> Iterator[Tracer | None]:
    """Yield a tracer while a worker runs, or None without `tracing.enabled`."""
    if not settings.tracing.enabled:
        yield None
        return
    from proxy.tracing.export import SpanQueue

    lookup = IngressLookup(
        lambda: Consumer(lookup_config(settings)), settings.topics.ingress, heartbeat=lambda: None
    )
    queue = SpanQueue(lookup.read, metrics.count_traced)
    try:
        yield Tracer(queue.has_room, queue.put, metrics.count_traced)
    finally:
        queue.close()
