"""Settings of the Kafka clients that the proxy makes, and what these log."""

import json
import logging
import re
import time
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import structlog
from confluent_kafka import KafkaException, Producer

from proxy.config.settings import Settings

# Unsecured OAUTHBEARER tokens, for trials (`enable.sasl.oauthbearer.unsecure.jwt`).
#
# librdkafka makes them, too, but renews them only while a client is polled. A client that rests
# is logged out. A callback in Python is served by a thread of librdkafka's own, as OIDC is.

UNSECURED: Final = "enable.sasl.oauthbearer.unsecure.jwt"
EXTENSION: Final = "extension_"
LIFE_S: Final = 3600.0

Token = tuple[str, float, str, dict[str, str]]
"""The token, the time at which it ends in seconds, the principal, SASL extensions."""


def with_token_callback(kafka: Mapping[str, Any]) -> dict[str, Any]:
    """Add a callback to a client's settings if they ask for unsecured tokens."""
    own = {name: value for name, value in kafka.items() if name != UNSECURED}
    if str(kafka.get(UNSECURED)).lower() != "true" or "oauth_cb" in kafka:
        return dict(kafka)
    return {**own, "oauth_cb": unsecured_token}


def unsecured_token(config: str) -> Token:
    """Make a token from `sasl.oauthbearer.config`. It has the same keys as in librdkafka.

    Source: librdkafka's CONFIGURATION.md.
    """
    said = dict(word.partition("=")[::2] for word in config.split())
    now_s = time.time()
    end_s = now_s + float(said.get("lifeSeconds", LIFE_S))
    principal = said.get("principal", "")
    claims = {said.get("principalClaimName", "sub"): principal, "iat": now_s, "exp": end_s}
    if scope := said.get("scope"):
        claims[said.get("scopeClaimName", "scope")] = scope.split(",")
    extensions = {
        name.removeprefix(EXTENSION): value
        for name, value in said.items()
        if name.startswith(EXTENSION)
    }
    return f"{_part({'alg': 'none'})}.{_part(claims)}.", end_s, principal, extensions


def _part(content: Mapping[str, Any]) -> str:
    return urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()


# What librdkafka logs, as lines of ours: the same complaint at most once in ten seconds.
#
# A client that cannot connect says so some fifteen times a second.

LOG_EVERY_S: Final = 10.0
MOST_KINDS: Final = 200
NUMBER: Final = re.compile(r"\d+")


class RepeatFilter:
    """Which lines to leave out; two are the same if only their numbers differ."""

    def __init__(self) -> None:
        self._logged: dict[str, tuple[float, int]] = {}

    def left_out(self, line: str, now_s: float) -> int | None:
        """How many of its kind were left out since the last one logged; None: leave it out, too."""
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
    """Return a logger for the clients of a command, which says itself what is wrong.

    The client library prints fatal errors at any `log_level` where it has no logger.
    """
    logger = logging.getLogger("librdkafka.command")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
        logger.propagate = False
    return logger


def client_logger() -> logging.Logger:
    """The logger to hand to a client of librdkafka."""
    logger = logging.getLogger("librdkafka")
    if not logger.handlers:
        logger.addHandler(_ToStructlog())
        logger.setLevel(logging.WARNING)
        logger.propagate = False
    return logger


# The librdkafka settings with which the proxy talks to the broker.
#
# The user's own settings (section `kafka`) come first; what the exactly-once argument rests on is
# laid over them, what is only a better default lies under them.

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
