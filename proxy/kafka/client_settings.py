"""The librdkafka settings with which the proxy talks to the broker.

The user's own settings (section `kafka`) come first; what the exactly-once argument rests on is
laid over them, what is only a better default lies under them.
"""

from contextlib import suppress
from typing import Any, Final

from confluent_kafka import KafkaException, Producer

from proxy.config.settings import Settings
from proxy.kafka.client_logs import client_logger
from proxy.kafka.unsecured_token import with_token_callback

CONNECT_WITHIN_S: Final = 5.0
TUNED_CONSUMER: Final = {
    "fetch.wait.max.ms": 10,
    "fetch.min.bytes": 100_000,
    "queued.min.messages": 50_000,
    "fetch.queue.backoff.ms": 5,
    "session.timeout.ms": 10_000,
    "heartbeat.interval.ms": 2_000,
    "max.poll.interval.ms": 300_000,
    "fetch.error.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1_000,
    "topic.metadata.refresh.interval.ms": 5_000,
}
"""The metadata is asked for so often that partitions which are added are soon assigned."""
COMMITTED_READER: Final = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
}
TUNED_PRODUCER: Final = {
    "linger.ms": 5,
    "retry.backoff.ms": 2,
    "transaction.timeout.ms": 10_000,
    "topic.metadata.propagation.max.ms": 1_000,
    "queue.buffering.max.messages": 1_000_000,
    "queue.buffering.max.kbytes": 262_144,
    "message.max.bytes": 100_000_000,
    "batch.size": 1_000_000,
    "reconnect.backoff.max.ms": 1_000,
    "sticky.partitioning.linger.ms": 0,
}
"""linger.ms 5: a transaction goes out in few requests, and its commit waits for none of it.
retry.backoff.ms 2 instead of 100: else each transaction soon after a commit waits 104 ms.
message.max.bytes: the broker, not the client, says what is too large.
queue.buffering.max.kbytes: more than a message may take, or it would wait for ever; how much is in
the queue is bounded by what a transaction holds (setting `memory`)."""


def common_config(settings: Settings) -> dict[str, Any]:
    """Connection settings, with librdkafka's own log lines sent to ours.

    Brokers close idle connections. When the last one closes, librdkafka would bootstrap anew. It
    forgets the coordinators then, and records that come meanwhile are seconds late. Without it a
    client never learns that all brokers have moved: whoever gets no answer makes a new client.
    """
    kafka = with_token_callback(settings.kafka)
    return {"metadata.recovery.strategy": "none", **kafka, "logger": client_logger()}


def admin_config(settings: Settings) -> dict[str, Any]:
    """An admin client that is kept: it notices by itself within seconds that a leader has moved."""
    return {"topic.metadata.refresh.interval.ms": 10_000, **common_config(settings)}


def consumer_config(settings: Settings, worker: int) -> dict[str, Any]:
    """A static member of the group that reads committed records and never commits itself.

    The members of a group have one queue for all partitions. It may be overshot by one answer of
    each broker.
    """
    shares = settings.memory_shares
    return {
        **TUNED_CONSUMER,
        "queued.max.messages.kbytes": shares.queue // 1024,
        "fetch.max.bytes": shares.fetch,
        **common_config(settings),
        "group.id": settings.group_id,
        "group.instance.id": f"{settings.instance_name}-{worker}",
        "partition.assignment.strategy": "cooperative-sticky",
        **COMMITTED_READER,
        "auto.offset.reset": "error",
    }


def lookup_config(settings: Settings) -> dict[str, Any]:
    """A consumer that reads single committed records and never joins the group.

    Fetches are small, since most of what comes behind a wanted record is thrown away; a larger
    record comes all the same. A fetch that waits at the end of the log keeps the next one, from
    elsewhere, waiting: it must not wait long. An offset that is not in the log is an error, never
    a jump.
    """
    return {
        **common_config(settings),
        "group.id": settings.group_id,
        **COMMITTED_READER,
        "auto.offset.reset": "error",
        "max.poll.interval.ms": 86_400_000,
        "fetch.message.max.bytes": 131_072,
        "fetch.wait.max.ms": 2,
        "queued.max.messages.kbytes": 2_048,
        "fetch.queue.backoff.ms": 5,
        "fetch.error.backoff.ms": 50,
        "reconnect.backoff.max.ms": 1_000,
    }


def listener_config(settings: Settings) -> dict[str, Any]:
    """A consumer that is to hear of the next committed record, or of the end behind one that was
    aborted, and never joins the group.

    Answers of the broker are held until there is something, or for half a second. What comes is not
    used, so little is asked for.
    """
    return {
        **lookup_config(settings),
        "fetch.min.bytes": 1,
        "fetch.wait.max.ms": 500,
        "fetch.message.max.bytes": 1_024,
        "queued.max.messages.kbytes": 1,
    }


def settings_reader_config(settings: Settings) -> dict[str, Any]:
    """A consumer that reads the settings topic on and on and never joins a group.

    Also what lies behind an open transaction: what it looks for is written outside of any.
    """
    return {
        **committed_settings_reader_config(settings),
        "isolation.level": "read_uncommitted",
        "fetch.wait.max.ms": 500,
    }


def committed_settings_reader_config(settings: Settings) -> dict[str, Any]:
    """A consumer of what transactions have written to the settings topic."""
    return {
        **common_config(settings),
        **COMMITTED_READER,
        "group.id": settings.group_id,
        "auto.offset.reset": "earliest",
        "max.poll.interval.ms": 86_400_000,
        "fetch.wait.max.ms": 100,
        "queued.max.messages.kbytes": 1_024,
        "reconnect.backoff.max.ms": 1_000,
    }


def producer_config(settings: Settings, worker: int, number: int = 0) -> dict[str, Any]:
    """A transactional producer whose id is stable, so that a restart fences its predecessor.

    `number`: of the producers that a worker has one after the other while the transaction of the
    one before cannot end.
    """
    return {
        **TUNED_PRODUCER,
        **common_config(settings),
        "transactional.id": transactional_id(settings, worker, number),
        "enable.idempotence": True,
        "partitioner": "murmur2_random",
    }


def session_timeout_ms(settings: Settings) -> int:
    """How long the group waits for a member that says nothing."""
    return int((TUNED_CONSUMER | settings.kafka)["session.timeout.ms"])


def transaction_timeout_ms(settings: Settings) -> int:
    """How long the broker lets a transaction stay open."""
    return int((TUNED_PRODUCER | settings.kafka)["transaction.timeout.ms"])


def transactional_id(settings: Settings, worker: int, number: int = 0) -> str:
    """Says where the group's name ends, so that no two of group, instance and worker share one:
    names may hold hyphens."""
    group_id, further = settings.group_id, f".{number}" if number else ""
    return f"{group_id}-{settings.instance_name}-{worker}{further}/{len(group_id)}"


def connected(producer: Producer, topic: str) -> Producer:
    """The producer, given a moment to find the broker; `topic` is one that exists.

    It needs an id from the broker before it sends anything, and only looks every half second
    whether it is connected. To ask about a topic makes it connect at once. Where no broker answers
    the next call says what is wrong.
    """
    with suppress(KafkaException):
        producer.list_topics(topic, CONNECT_WITHIN_S)
    return producer


def is_compressing(settings: Settings) -> bool:
    """Whether the user has asked the client to compress what it sends."""
    names = ("compression.type", "compression.codec")
    return any(settings.kafka.get(name, "none") != "none" for name in names)


def transaction_timeout_s(settings: Settings) -> float:
    """How long a transaction may last before the broker aborts it."""
    name = "transaction.timeout.ms"
    return float(settings.kafka.get(name, TUNED_PRODUCER[name])) / 1_000
