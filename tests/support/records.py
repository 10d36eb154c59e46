"""Topics and records on a real broker, for tests."""

import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import methodcaller
from sys import intern
from typing import cast

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic

from proxy.kafka.client_settings import connected
from proxy.kafka.log_ranges import answered_offset
from tests.support.quiet_clients import QUIET, admin_client
from tests.support.waiting import wait_for

Headers = list[tuple[str, bytes | None]]
Partition = tuple[str, int]

_read_headers = methodcaller("headers")

READ_TIMEOUT_S = 180.0
WRITE_TIMEOUT_S = 180.0
TOGETHER_MS = 1_000
"""Linger time that keeps records of one write together even on a slow machine, for example a
record and its cancel. `flush` does not wait for it."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """Record to write. Partition -1 means partitioned by key."""

    key: bytes | None = None
    value: bytes | None = b""
    headers: Sequence[tuple[str, bytes | None]] = ()
    partition: int = -1


@dataclass(frozen=True, slots=True)
class Incoming:
    """Record as a consumer received it. `timestamp_ms` is the broker's or the producer's."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int

    def header(self, name: str) -> bytes | None:
        for found, value in reversed(self.headers):
            if found == name:
                return value
        return None


def broker_answers(bootstrap: str) -> bool:
    try:
        return bool(admin_client(bootstrap).list_topics(timeout=2).brokers)
    except KafkaException:
        return False


def has_topic(bootstrap: str, name: str) -> bool:
    admin = admin_client(bootstrap)
    return name in admin.list_topics(timeout=WRITE_TIMEOUT_S).topics


def new_topic(
    bootstrap: str,
    about: str = "topic",
    partitions: int = 1,
    config: Mapping[str, str] | None = None,
) -> str:
    """Create a topic with a unique name and return the name. Retention is off by default. Wait
    until all partitions have a leader, because at first the broker may know only some."""
    name = f"{about}-{uuid.uuid4().hex[:8]}"
    settings = {"retention.ms": "-1", **(config or {})}
    admin = admin_client(bootstrap)
    topic = NewTopic(name, partitions, 1, config=settings)
    admin.create_topics([topic])[name].result(WRITE_TIMEOUT_S)

    def is_led() -> bool:
        found = admin.list_topics(name, timeout=WRITE_TIMEOUT_S).topics[name]
        led = [one for one in found.partitions.values() if one.error is None and one.leader >= 0]
        return found.error is None and len(led) == partitions

    wait_for(is_led, WRITE_TIMEOUT_S, f"{name} to be led")
    return name


def set_topic_config(bootstrap: str, topic: str, config: Mapping[str, str]) -> None:
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in config.items()
    ]
    changed = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = admin_client(bootstrap)
    admin.incremental_alter_configs([changed])[changed].result(WRITE_TIMEOUT_S)


def write(bootstrap: str, topic: str, records: Iterable[Outgoing]) -> None:
    refused: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            refused.append(error)

    settings = {
        "bootstrap.servers": bootstrap,
        "enable.idempotence": True,
        "linger.ms": TOGETHER_MS,
        **QUIET,
    }
    producer = connected(Producer(settings), topic)
    for record in records:
        _produce(producer, topic, record, on_delivery)
    left = producer.flush(WRITE_TIMEOUT_S)
    assert not left, f"{left} records for {topic} did not reach {bootstrap}"
    assert not refused, f"{len(refused)} records for {topic} were refused: {refused[0]}"


def _produce(
    producer: Producer,
    topic: str,
    record: Outgoing,
    on_delivery: Callable[[KafkaError | None, Message], None],
) -> None:
    headers: list[tuple[str, str | bytes | None]] = list(record.headers)
    while True:
        try:
            producer.produce(
                topic,
                record.value,
                record.key,
                record.partition,
                on_delivery=on_delivery,
                headers=headers,
            )
        except BufferError:
            producer.poll(0.1)
        else:
            return


def read_to_end(
    bootstrap: str, topic: str, at_least: int = 0, timeout_s: float = READ_TIMEOUT_S
) -> list[Incoming]:
    """Return all committed records of a topic in order of arrival, at least `at_least`. Read to the
    end at the time of the call, also transactions that are open then. This is necessary, because a
    broker answers a commit before it ends the transaction in each partition. Fail after
    `timeout_s`."""
    consumer = Consumer(
        {
            **QUIET,
            "bootstrap.servers": bootstrap,
            "group.id": f"reader-{uuid.uuid4().hex[:8]}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
        }
    )
    try:
        return _collect(consumer, ends(bootstrap, topic), topic, at_least, timeout_s)
    finally:
        consumer.close()


def ends(bootstrap: str, topic: str) -> dict[int, int]:
    """Return the next offset by partition, open transactions included."""
    admin = admin_client(bootstrap)
    numbers = admin.list_topics(topic, timeout=WRITE_TIMEOUT_S).topics[topic].partitions
    found = ends_of(admin, [(topic, number) for number in numbers])
    return {number: end for (_, number), end in found.items()}


def ends_of(admin: AdminClient, places: Iterable[Partition]) -> dict[Partition, int]:
    """Return the next offsets of partitions of any topics. Wait for missing leaders."""
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    wanted = {TopicPartition(*place): latest for place in places}
    found: dict[Partition, int] = {}

    def is_recorded() -> bool:
        asked = admin.list_offsets(wanted, isolation_level=IsolationLevel.READ_UNCOMMITTED)
        try:
            told = {(one.topic, one.partition): answered_offset(a) for one, a in asked.items()}
        except KafkaException:
            admin.list_topics(timeout=WRITE_TIMEOUT_S)  # refresh the leaders
            return False
        found.update(told)
        return True

    if wanted:
        wait_for(is_recorded, READ_TIMEOUT_S, f"the ends of {[*wanted]}")
    return found


def await_ends(bootstrap: str, topic: str, offsets: Mapping[int, int]) -> None:
    """Wait until each partition ends at its offset in `offsets`. A transaction's marker takes an
    offset, and the broker answers before it writes the marker."""
    wait_for(lambda: ends(bootstrap, topic) == offsets, READ_TIMEOUT_S, f"{topic} at {offsets}")


def _collect(
    consumer: Consumer, goals: Mapping[int, int], topic: str, at_least: int, timeout_s: float
) -> list[Incoming]:
    consumer.assign([TopicPartition(topic, number, 0) for number in goals])
    deadline = time.monotonic() + timeout_s
    seen: list[Incoming] = []
    ended = dict.fromkeys(goals, -1)
    while len(seen) < at_least or any(ended[number] < goal for number, goal in goals.items()):
        if time.monotonic() > deadline:
            raise AssertionError(
                f"{topic}: {len(seen)} of {at_least} records within {timeout_s:g} s, read up to "
                f"{ended}, to be read up to {goals}"
            )
        for message in consumer.consume(1000, 0.02):
            _note(message, seen, ended)
    return seen


def _note(message: Message, seen: list[Incoming], ended: dict[int, int]) -> None:
    error, partition, offset = message.error(), message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    if error is None:
        seen.append(incoming(message))
    elif error.code() == KafkaError._PARTITION_EOF:
        ended[partition] = offset
    else:
        raise KafkaException(error)


def incoming(message: Message) -> Incoming:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    try:
        read = cast("Headers", _read_headers(message) or [])
        headers = [(intern(name), value) for name, value in read]
    except SystemError:  # a name is not UTF-8; a second call would crash
        headers = []
    return Incoming(
        partition, offset, message.key(), message.value(), headers, message.timestamp()[1]
    )
