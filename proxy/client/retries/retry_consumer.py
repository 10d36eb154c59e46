"""A consumer whose failed records come again later, through the proxy (RocketMQ's retry levels)."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, TypeAlias

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from proxy.client.delay_producer import INGRESS
from proxy.client.errors import ConfigRefused, StillUnsent
from proxy.client.ingress_writer import IngressWriter
from proxy.client.kafka_settings import (
    TRANSACTIONAL_ID,
    Settings,
    connection_settings,
    consumer_settings,
    producer_settings,
)
from proxy.client.needed_topics import ensure_topics
from proxy.client.place import UnreadableHeaders, place_of
from proxy.client.retries.backlog import Backlog
from proxy.client.retries.failure import Failure
from proxy.client.retries.failure_rules import Exceptions, FailureRules
from proxy.client.retries.received import Received, received
from proxy.client.retries.retry_request import retry_request
from proxy.client.retries.settlement import AtLeastOnce, ExactlyOnce, GroupMoved, Settlement
from proxy.client.transactions import Transactions

Handler: TypeAlias = Callable[[Received], object]

MAX_ATTEMPTS: Final = 16
POLL_S: Final = 0.5
SETTLE_EVERY_S: Final = 1.0
MOST_UNSETTLED: Final = 100
MOST_UNSETTLED_BYTES: Final = 16 * 1024 * 1024
STORE_WITHIN_MS: Final = 30_000
CLOSE_WITHIN_S: Final = 10.0

log = logging.getLogger("proxy.client")


class RetryConsumer:
    """Calls `handler` for each record of `topics`; what it raises brings the record again later.

    The record goes through the proxy to `retry.<group>`, after 10 s the first time, then 30 s,
    1 m, 2 m and so on; after `max_attempts` failures, or when the handler raises DeadLetter, to
    `dlq.<group>`. RetryLater chooses the delay. The records behind it are not held up. Both topics
    are made if they are missing.

    `give_up` names exceptions that send a record to the dead letters at once, `ignore` those after
    which it counts as handled, `retry` those that are retried all the same; all others are, too.
    The most specific class counts.

    `config` is what confluent_kafka.Consumer takes. `producer_config` is for the producer of the
    retry requests; how to reach the broker it takes from `config`. With a `transactional.id` in
    it a retry request and the offsets are one Kafka transaction: each failure is retried exactly
    once. Without, the request is stored first, so a crash in between retries it twice. A handler
    itself always runs at least once.

    One thread: `run` polls, handles and commits; to go faster run more consumers of the group.
    It is the proxy that gives up, by its settings. Where these differ, `retry_topic` and
    `max_attempts` must be what they say; the topic of dead letters is then yours to make. How often
    a record has failed arrives in `retry-attempt`; `timer-attempt` is taken off on the way.
    """

    def __init__(
        self,
        config: Settings,
        group: str,
        topics: Sequence[str],
        handler: Handler,
        *,
        producer_config: Settings | None = None,
        ingress: str = INGRESS,
        retry_topic: str | None = None,
        max_attempts: int = MAX_ATTEMPTS,
        retry: Exceptions = (),
        give_up: Exceptions = (),
        ignore: Exceptions = (),
    ) -> None:
        if isinstance(topics, str) or not topics:
            raise ConfigRefused(f"topics is {topics!r}: give a list of at least one topic")
        self._group, self._topics, self._handler = group, list(topics), handler
        self._retry_target = retry_topic
        self._retry_topic = retry_topic or f"retry.{group}"
        self._max_attempts, self._ingress = max_attempts, ingress
        self._consumer_settings = consumer_settings(config, group)
        self._producer_settings = _for_requests(config, producer_config or {})
        self._rules = FailureRules(retry, give_up, ignore)
        self._backlog = Backlog()
        self._settlement: Settlement | None = None
        self._settled_at_s = 0.0
        self._stopping = threading.Event()

    def run(self) -> None:
        """Work until `stop` is called; then commit what is handled, leave the group and return.

        Raises RetryNotStored when a failed record cannot be handed over: its offset stays
        uncommitted, so that nothing is lost. TransactionInDoubt or ProducerFenced when its
        transaction went wrong; KafkaException when the broker refuses the consumer.
        """
        writer = IngressWriter(self._producer_settings, self._ingress, STORE_WITHIN_MS / 1000)
        try:
            consumer = Consumer(self._consumer_settings)
            try:
                self._work(consumer, writer)
            finally:
                consumer.close()
        finally:
            with suppress(StillUnsent):  # what was not stored has its offset uncommitted
                writer.close(CLOSE_WITHIN_S)

    def stop(self) -> None:
        """Make `run` return after the record in hand; for signal handlers and other threads."""
        self._stopping.set()

    def _work(self, consumer: Consumer, writer: IngressWriter) -> None:
        own = [] if self._retry_target else [f"dlq.{self._group}"]
        ensure_topics(consumer, self._consumer_settings, [self._retry_topic, *own])
        if writer.transactional_id:
            transactions = Transactions(writer, STORE_WITHIN_MS / 1000)
            self._settlement = ExactlyOnce(consumer, writer, transactions)
        else:
            self._settlement = AtLeastOnce(consumer, writer)
        consumer.subscribe(
            [*self._topics, self._retry_topic], on_revoke=self._on_revoke, on_lost=self._on_lost
        )
        while not self._stopping.is_set():
            self._step(consumer)
        self._settle()

    def _step(self, consumer: Consumer) -> None:
        """One record, if there is one; commits when there is none, or when it is time."""
        message = consumer.poll(0 if self._backlog else POLL_S)
        if message is None:
            self._settle()
        elif (error := message.error()) is not None:
            _raise_if_hopeless(error)
        else:
            self._take(message)
            if self._is_time():
                self._settle()

    def _take(self, message: Message) -> None:
        if not self._backlog:
            self._settled_at_s = time.monotonic()
        try:
            record = received(message, self._retry_topic)
        except UnreadableHeaders as error:
            self._failed(_without_headers(message), Failure(str(error), is_final=True))
            return
        try:
            self._handler(record)
        except Exception as error:  # noqa: BLE001 (whatever the handler raises is a failure)
            self._raised(record, error)
        else:
            self._backlog.handled(record.read_from)

    def _raised(self, record: Received, error: Exception) -> None:
        failure = self._rules.failure_of(error)
        if failure is None:
            log.info("%s is handled in spite of %r", record.read_from, error)
            self._backlog.handled(record.read_from)
        else:
            log.info("%s failed (%s before): %r", record.read_from, record.attempt, error)
            self._failed(record, failure)

    def _failed(self, record: Received, failure: Failure) -> None:
        request = retry_request(
            record, failure, self._group, self._max_attempts, self._retry_target
        )
        self._backlog.failed(record.read_from, request)

    def _is_time(self) -> bool:
        return (
            self._backlog.records >= MOST_UNSETTLED
            or self._backlog.request_bytes >= MOST_UNSETTLED_BYTES
            or time.monotonic() - self._settled_at_s >= SETTLE_EVERY_S
        )

    def _settle(self) -> bool:
        """False when it has to be done again after a poll."""
        if not self._backlog or self._settlement is None:
            return True
        try:
            self._settlement.settle(self._backlog)
        except GroupMoved as moved:
            log.info("the group %s is being shared out anew: %s", self._group, moved)
            return False
        except Exception:
            self._backlog.clear()
            raise
        return True

    def _on_revoke(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if not self._settle():
            self._on_lost(_consumer, partitions)

    def _on_lost(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._backlog.drop((lost.topic, lost.partition) for lost in partitions)


def _for_requests(config: Settings, given: Settings) -> dict[str, object]:
    """Settings of the producer: a request must be stored well before the group gives up on us."""
    within = {"message.timeout.ms": STORE_WITHIN_MS}
    if {"message.timeout.ms", "delivery.timeout.ms"} & given.keys() or TRANSACTIONAL_ID in given:
        within = {}
    settings = {**connection_settings(config), **within, **given}
    producer_settings(settings)
    return settings


def _without_headers(message: Message) -> Received:
    place = place_of(message)
    return Received(place, place, 0, message.key(), message.value(), [], message.timestamp()[1])


def _raise_if_hopeless(error: KafkaError) -> None:
    """Raise what no waiting cures; librdkafka sees to the rest by itself."""
    hopeless = {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.FENCED_INSTANCE_ID,
    }
    if error.fatal() or error.code() in hopeless:
        raise KafkaException(error)
    log.warning("the consumer goes on after: %s", error.str())
