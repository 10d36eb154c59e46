"""A group of retry consumers on a real broker. A relay replaces the proxy and delivers at once."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

from confluent_kafka import Consumer, Producer, TopicPartition

from kafka_delay import Received, RetryConsumer
from tests.support.group_offsets import committed
from tests.support.quiet_clients import QUIET, admin_client
from tests.support.records import Incoming, Outgoing, new_topic, read_to_end, write

WITHIN_S = 180
Handle = Callable[[Received], object]
CLASSIC = {"session.timeout.ms": 45_000, "heartbeat.interval.ms": 500}
"""A leaving consumer says so. If a slow machine ended a session, records would be handled twice."""
IMPATIENT = {**CLASSIC, "session.timeout.ms": 6_000}
"""Session time-out of a consumer that disappears silently."""


class World:
    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.group = f"g{uuid.uuid4().hex[:8]}"
        self.orders = new_topic(bootstrap, "orders", 4)
        self.ingress = new_topic(bootstrap, "ingress", 2)
        self.retry, self.dlq = f"retry.{self.group}", f"dlq.{self.group}"

    def consumer(
        self, handler: Handle, config: Mapping[str, Any] = CLASSIC, **options: Any
    ) -> RetryConsumer:
        given = {"ingress": self.ingress, **options}
        settings = {"bootstrap.servers": self.bootstrap, **QUIET, **config}
        return RetryConsumer(settings, self.group, [self.orders], handler, **given)

    def write(self, *records: Outgoing) -> None:
        write(self.bootstrap, self.orders, records)

    def write_retry(self, value: bytes) -> None:
        write(self.bootstrap, self.retry, [Outgoing(b"k", value)])

    def retries_committed(self) -> int:
        found = admin_client(self.bootstrap).list_topics(self.retry, WITHIN_S)
        numbers = found.topics[self.retry].partitions
        return sum(max(0, self.committed(self.retry, number)) for number in numbers)

    def requests(self, at_least: int) -> list[Incoming]:
        return read_to_end(self.bootstrap, self.ingress, at_least)

    def committed(self, topic: str, partition: int = 0) -> int:
        settings = {"bootstrap.servers": self.bootstrap, "group.id": self.group, **QUIET}
        consumer = Consumer(settings)
        try:
            (place,) = committed(consumer, [TopicPartition(topic, partition)])
            assert not place.metadata
            return place.offset
        finally:
            consumer.close()


class Running:
    """A consumer in a thread, stopped at the end. The end raises the consumer's error again."""

    def __init__(self, consumer: RetryConsumer) -> None:
        self.consumer = consumer
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self.consumer.run()
        except BaseException as error:  # noqa: BLE001 (raised again where the test can see it)
            self.error = error

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.consumer.stop()
        self._thread.join(WITHIN_S)
        assert not self._thread.is_alive(), "it does not stop"
        if self.error:
            raise self.error


class Relay:
    """Relay that takes retry requests from the ingress and delivers them at once."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        world = self._world
        settings = {"bootstrap.servers": world.bootstrap, "group.id": f"relay-{world.group}"}
        consumer = Consumer({**settings, "isolation.level": "read_committed"})
        consumer.assign([TopicPartition(world.ingress, number, 0) for number in range(2)])
        producer = Producer({"bootstrap.servers": world.bootstrap, "linger.ms": 0, **QUIET})
        while not self._stopping.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                headers: Any = message.headers() or []
                target, kept = _delivery(world, headers)
                producer.produce(target, message.value(), message.key(), headers=kept)
            producer.poll(0)
        consumer.close()
        assert producer.flush(WITHIN_S) == 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(WITHIN_S)


def _delivery(
    world: World, headers: list[tuple[str, bytes | None]]
) -> tuple[str, list[tuple[str, str | bytes | None]]]:
    is_over = int(dict(headers)["timer-attempt"] or b"") >= 16
    kept: list[tuple[str, str | bytes | None]] = [
        header for header in headers if not header[0].startswith("timer-")
    ]
    return (world.dlq if is_over else world.retry), kept


@contextmanager
def at_work(world: World, handler: Handle, **options: Any) -> Iterator[Running]:
    with Running(world.consumer(handler, **options)) as running:
        yield running


def fails(*values: bytes) -> Handle:
    def handle(record: Received) -> None:
        if record.value in values:
            raise ValueError(f"no {record.value!r}")

    return handle
