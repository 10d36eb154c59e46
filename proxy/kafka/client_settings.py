"""Settings and logging of the Kafka clients."""

import logging
import re
import time
from contextlib import suppress
from typing import Any, Final

import structlog
from confluent_kafka import KafkaException, Producer

from proxy.config.settings import Settings
from proxy.logins import with_login

# A client that cannot connect logs about fifteen lines a second, so equal lines are left out.

LOG_EVERY_S: Final = 10.0
MOST_KINDS: Final = 200
NUMBER: Final = re.compile(r"\d+")


class RepeatFilter:
    """Limits equal lines to one in LOG_EVERY_S. Equal lines may have different numbers in them."""

    def __init__(self) -> None:
        self._logged: dict[str, tuple[float, int]] = {}

    def left_out(self, line: str, now_s: float) -> int | None:
        """Return how many equal lines were left out before. None: leave this line out, too."""
        kind = NUMBER.sub("#", line)
        logged_s, count = self._logged.get(kind, (-LOG_EVERY_S, 0))
        if now_s - logged_s < LOG_EVERY_S:
            self._logged[kind] = logged_s, count + 1
            return None
        self._logged.pop(kind, None)
        if len(self._logged) >= MOST_KINDS:
            del self._logged[next(iter(self._logged))]
        self._logged[kind] = now_s, 0
        return count


class _ToStructlog(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self._filter = RepeatFilter()

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        left_out = self._filter.left_out(line, time.monotonic())
        if left_out is not None:
            log = structlog.get_logger("librdkafka")
            more = {"left_out": left_out} if left_out else {}
            log.log(max(record.levelno, logging.INFO), "librdkafka", said=line, **more)


def silent_logger() -> logging.Logger:
    """Return a silent logger for commands. Without a logger, librdkafka prints fatal errors."""
    logger = logging.getLogger("librdkafka.command")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
        logger.propagate = False
    return logger


def client_logger() -> logging.Logger:
    """Return the logger for librdkafka clients."""
    logger = logging.getLogger("librdkafka")
    if not logger.handlers:
        logger.addHandler(_ToStructlog())
        logger.setLevel(logging.WARNING)
        logger.propagate = False
    return logger


# The user's section `kafka` overrides the tuned defaults below. Settings that exactly-once needs
# override the user's section.

CONNECT_WITHIN_S: Final = 5.0
TUNED_CONSUMER: Final = {
    "fetch.wait.max.ms": 10,
    "fetch.min.bytes": 100_000,
    "queued.min.messages": 50_000,
    "fetch.queue.backoff.ms": 5,
    "session.timeout.ms": 10_000,
    "heartbeat.interval.ms": 500,
    "max.poll.interval.ms": 300_000,
    "fetch.error.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1_000,
    "topic.metadata.refresh.interval.ms": 5_000,
}
"""`heartbeat.interval.ms` is short, because members learn by their heartbeats of a rebalance.
`topic.metadata.refresh.interval.ms` is short, so that added partitions are noticed soon."""
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
"""`linger.ms` is above 0, so that a transaction takes few requests. With a `retry.backoff.ms` of
100, a transaction right after a commit would wait 104 ms. `message.max.bytes` is high, because the
broker limits the size of records. The largest message must fit into `queue.buffering.max.kbytes`.
The setting `memory` bounds the queue."""


def common_config(settings: Settings) -> dict[str, Any]:
    """Return connection settings. librdkafka's log lines go to the proxy's log.

    Rebootstraps are switched off. After brokers have closed the last idle connection, a rebootstrap
    would forget the coordinators, and delay records by seconds. But if all brokers get other
    addresses, a client no longer finds them, and must be replaced.
    """
    kafka = with_login(settings.kafka)
    return {"metadata.recovery.strategy": "none", **kafka, "logger": client_logger()}


def admin_config(settings: Settings) -> dict[str, Any]:
    """Return settings of a long-lived admin client, which soon notices moved leaders."""
    return {"topic.metadata.refresh.interval.ms": 10_000, **common_config(settings)}


def consumer_config(settings: Settings, worker: int) -> dict[str, Any]:
    """Return settings of a static group member that reads committed records and never commits. The
    queue can exceed its limit by one answer (`fetch.max.bytes`) of each broker."""
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
    """Return settings of a consumer for single committed records, outside the group.

    Most fetched records are dropped, so fetches are small. The next fetch must wait while the
    broker holds a fetch at the log's end. So `fetch.wait.max.ms` is low.
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
    """Return settings of a consumer outside the group that only notices new records or higher ends.
    If there are none, the broker answers after half a second."""
    return {
        **lookup_config(settings),
        "fetch.min.bytes": 1,
        "fetch.wait.max.ms": 500,
        "fetch.message.max.bytes": 1_024,
        "queued.max.messages.kbytes": 1,
    }


def settings_reader_config(settings: Settings) -> dict[str, Any]:
    """Return settings of a consumer that follows the settings topic. It does not wait for open
    transactions, because the records that it needs are written without transactions."""
    return {
        **committed_settings_reader_config(settings),
        "isolation.level": "read_uncommitted",
        "fetch.wait.max.ms": 500,
    }


def committed_settings_reader_config(settings: Settings) -> dict[str, Any]:
    """Return settings of a consumer for transactional records of the settings topic."""
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
    """Return settings of a transactional producer that fences its predecessor. If the worker's last
    transaction cannot end, a higher `number` gives another transactional id."""
    return {
        **TUNED_PRODUCER,
        **common_config(settings),
        "transactional.id": transactional_id(settings, worker, number),
        "enable.idempotence": True,
        "partitioner": "murmur2_random",
    }


def session_timeout_ms(settings: Settings) -> int:
    """Return the time after which the group drops a silent member."""
    return int((TUNED_CONSUMER | settings.kafka)["session.timeout.ms"])


def transaction_timeout_ms(settings: Settings) -> int:
    """Return the time after which the broker aborts a transaction."""
    return int((TUNED_PRODUCER | settings.kafka)["transaction.timeout.ms"])


def transactional_id(settings: Settings, worker: int, number: int = 0) -> str:
    """Return the transactional id. The length of the group's name at the end makes the id unique.
    Without it, groups and instances with hyphens could get the same id."""
    group_id, further = settings.group_id, f".{number}" if number else ""
    return f"{group_id}-{settings.instance_name}-{worker}{further}/{len(group_id)}"


def connected(producer: Producer, topic: str) -> Producer:
    """Connect the producer, and return it. `topic` must exist.

    A new producer checks its connections only every half second. A question about a topic makes it
    connect immediately.
    """
    with suppress(KafkaException):
        producer.list_topics(topic, CONNECT_WITHIN_S)
    return producer


def is_compressing(settings: Settings) -> bool:
    """Whether the user's settings make the client compress records."""
    names = ("compression.type", "compression.codec")
    return any(settings.kafka.get(name, "none") != "none" for name in names)
