"""Kafka clients of generator, relay and reader, tuned so that they do not limit a measurement."""

import os
import time
from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaError, Message, Producer

from tools.benchmarks.errors import BenchmarkError

Setting = str | int | float | bool
Headers = list[tuple[str, str | bytes | None]]

ERRORS_ONLY = 3
ROOM_MESSAGES = 400_000


def producer(bootstrap_servers: str, overrides: Mapping[str, Setting] | None = None) -> Producer:
    """Return an idempotent producer that reports failed records only."""
    return Producer(producing(bootstrap_servers, overrides))


def producing(
    bootstrap_servers: str, overrides: Mapping[str, Setting] | None = None
) -> dict[str, object]:
    return {
        "bootstrap.servers": bootstrap_servers,
        "log_level": ERRORS_ONLY,
        "enable.idempotence": True,
        "linger.ms": 5,
        "queue.buffering.max.messages": ROOM_MESSAGES,
        "queue.buffering.max.kbytes": 1_048_576,
        "delivery.report.only.error": True,
        "on_delivery": stop_on_failure,
        **(overrides or {}),
    }


def consumer(bootstrap_servers: str, overrides: Mapping[str, Setting] | None = None) -> Consumer:
    """Return a read_committed consumer that fetches ahead with a short backoff."""
    settings: dict[str, object] = {
        "bootstrap.servers": bootstrap_servers,
        "log_level": ERRORS_ONLY,
        "group.id": f"benchmark-{os.getpid()}",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "fetch.wait.max.ms": 5,
        "fetch.queue.backoff.ms": 2,
        "queued.min.messages": 400_000,
        "queued.max.messages.kbytes": 524_288,
        **(overrides or {}),
    }
    return Consumer(settings)


def stop_on_failure(error: KafkaError | None, message: Message) -> None:
    """Fail on a lost record, because it would falsify the measurement."""
    if error is not None:
        raise BenchmarkError(
            f"A record for {message.topic()} was not written: {error}. See the broker's log."
        )


def wait_for_room(client: Producer) -> None:
    left = len(client) // 2
    while len(client) > left:
        client.poll(0)
        time.sleep(0.002)


def finish(client: Producer, timeout_s: float = 120) -> None:
    """Wait until the broker has all records. Raise BenchmarkError if it does not."""
    left = client.flush(timeout_s)
    if left:
        raise BenchmarkError(
            f"The broker did not take {left} records within {timeout_s:.0f} s. See its log."
        )
