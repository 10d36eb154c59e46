"""A consumer whose failed records come again later, through the proxy (RocketMQ's retry levels)."""

import logging
import threading
from collections.abc import Sequence
from contextlib import closing, suppress
from datetime import timedelta
from functools import partial
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException

from proxy.client.delay_producer import INGRESS
from proxy.client.errors import ConfigRefused, StillUnsent
from proxy.client.ingress_writer import IngressWriter
from proxy.client.kafka_settings import (
    TRANSACTIONAL_ID,
    Settings,
    connection_settings,
    consumer_settings,
    need_all_acks,
    producer_settings,
    refuse_no_mapping,
)
from proxy.client.needed_topics import TopicWatch, ensure_topics, ids_from
from proxy.client.retries.committing.settlement import Settlement
from proxy.client.retries.consumer_arguments import (
    checked_retry_topic,
    checked_topics,
    refuse_unusable_handler,
)
from proxy.client.retries.consumer_loop import ConsumerLoop, LogsBeganAnew
from proxy.client.retries.handling.failure_rules import Exceptions, FailureRules
from proxy.client.retries.handling.handler_threads import Handler, HandlerThreads
from proxy.client.retries.handling.handling import Handling
from proxy.client.retries.handling.job import Runner
from proxy.client.retries.handling.key_order import by_key, by_key_or_partition
from proxy.client.retries.local_retries import local_retries
from proxy.client.retries.received import Believed
from proxy.client.retries.retry_request import retry_request
from proxy.client.retries.signer import Signer, SigningKey
from proxy.client.rights import broker_error
from proxy.client.when import Delay, delay_text
from proxy.protocol.times import parse_delay_ms

MAX_ATTEMPTS: Final = 16
BEYOND_ALL_ATTEMPTS: Final = 1_000
"""The proxy takes no larger setting, so it gives up whatever it is set to."""
HANDLER_TIMEOUT: Final = timedelta(minutes=15)
MAX_HANGING: Final = 10
STORE_WITHIN_MS: Final = 30_000
CLOSE_WITHIN_S: Final = 10.0
MAX_POLL_INTERVAL_MS: Final = 300_000
"""librdkafka's own: how long the group waits for a member when it is shared out anew."""

log = logging.getLogger("proxy.client")


class RetryConsumer:
    """Calls `handler` for each record of `topics`; what it raises brings the record again later.

    The record goes through the proxy to `retry.<group>`, after 10 s the first time, then 30 s,
    1 m, 2 m and so on; after `max_attempts` failures, or when the handler raises DeadLetter, to
    `dlq.<group>`. RetryLater chooses the delay. The records behind it are not held up. Both topics
    are made if they are missing.

    `parallel` handlers run at a time, each in a thread of its own; records with the same key come
    one after the other. One that has not returned after `handler_timeout` counts as failed. Its
    thread cannot be ended and may go on; with more than `max_hanging` of these `run` raises
    HandlersHang.

    `give_up` names exceptions that send a record to the dead letters at once, `ignore` those after
    which it counts as handled, `retry` those that are retried all the same; all others are, too.
    The most specific class counts.

    With `orderly` a key waits for its failed record: that is tried again where it lies, after the
    delays of `orderly_delays` (a table such as `1s 5s 1m`), and the key goes on once it succeeds or
    is a dead letter. Other keys go on meanwhile; docs/client.md#in-order-whatever-fails.

    `config` is what confluent_kafka.Consumer takes. `producer_config` is for the producer of the
    retry requests; how to reach the broker it takes from `config`. The offsets of a partition are
    committed up to its first record that is not done. After a crash everything behind that offset
    comes again, and a failure that was handed over may be handed over again.

    `signing_key` (str or bytes, the same for all members of the group) signs retry requests. A
    retry that is not signed with it is forged, and goes to the dead letters. A list of keys is for
    changing them: the first signs, all verify; docs/client.md#forged-retries.

    Unless `orderly`, it is the proxy that gives up, by its settings. Where these differ,
    `retry_topic` and `max_attempts` must be what they say; the topic of dead letters is then yours
    to make. How often a record has failed arrives in `retry-attempt`; `timer-attempt` is taken off
    on the way.
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
        parallel: int = 1,
        handler_timeout: Delay = HANDLER_TIMEOUT,
        max_hanging: int = MAX_HANGING,
        orderly: bool = False,
        orderly_delays: str | None = None,
        signing_key: SigningKey | None = None,
    ) -> None:
        refuse_unusable_handler(handler)
        self._topics = checked_topics(topics, group, ingress)
        self._group, self._handler, self._retry_target = group, handler, retry_topic
        self._retry_topic = checked_retry_topic(retry_topic, group)
        self._max_attempts = _at_least(1, max_attempts, "max_attempts")
        self._ingress = ingress
        self._rules = FailureRules(retry, give_up, ignore)
        self._parallel = _at_least(1, parallel, "parallel")
        self._handler_timeout_s = _seconds(handler_timeout, "handler_timeout")
        self._max_hanging = _at_least(0, max_hanging, "max_hanging")
        self._local_retries = local_retries(orderly, orderly_delays, max_attempts)
        self._consumer_settings = consumer_settings(config, group)
        self._producer_settings = _for_requests(config, producer_config or {})
        self._signer = None if signing_key is None else Signer(group, signing_key)
        self._stopping = threading.Event()
        self._handling: Handling | None = None
        """That of the last run: some of its handlers may still be running."""

    def run(self) -> None:
        """Work until `stop` is called; then commit what is handled, leave the group and return.

        Raises RetryNotStored when a failed record cannot be handed over: its offset stays
        uncommitted, so that nothing is lost. HandlersHang when too many handlers do not return;
        BrokerError when the broker refuses the consumer, for want of a right maybe; what a handler
        raises that is no Exception.
        """
        self.run_with(HandlerThreads(self._handler, self._parallel))

    def stop(self) -> None:
        """Make `run` return after the records in hand; for signal handlers and other threads."""
        self._stopping.set()

    def _may_begin(self) -> bool:
        return not self._stopping.is_set()

    def run_with(self, runner: Runner) -> None:
        """The same, with handlers that are called by this runner."""
        if self._handling is not None:
            self._handling.raise_if_too_many_hang(self._max_hanging)
        writer = IngressWriter(self._producer_settings, self._ingress, STORE_WITHIN_MS / 1000)
        try:
            with closing(runner):
                handling = self._handling = self._new_handling(runner)
                while not self._is_done(writer, handling):
                    log.info("another consumer is opened")
        finally:
            with suppress(StillUnsent):  # what was not stored has its offset uncommitted
                writer.close(CLOSE_WITHIN_S)

    def _is_done(self, writer: IngressWriter, handling: Handling) -> bool:
        """Work with a consumer of its own. False: another one has to go on."""
        try:
            with closing(Consumer(self._consumer_settings)) as consumer:
                self._work(consumer, writer, handling)
        except LogsBeganAnew:
            return False
        except KafkaException as error:
            topics = [*self._topics, self._retry_topic]
            settings = self._consumer_settings
            raise broker_error(error.args[0], settings, self._group, topics) from error
        return True

    def _work(self, consumer: Consumer, writer: IngressWriter, handling: Handling) -> None:
        own = [] if self._retry_target else [f"dlq.{self._group}"]
        ensure_topics(consumer, self._consumer_settings, [self._retry_topic, *own])
        request_of = partial(
            retry_request,
            group=self._group,
            max_attempts=BEYOND_ALL_ATTEMPTS if self._local_retries else self._max_attempts,
            target=self._retry_target,
            signer=self._signer,
        )
        loop = ConsumerLoop(
            consumer,
            Settlement(consumer, writer),
            handling,
            self._rules,
            request_of,
            Believed(self._topics, self._retry_topic, self._signer),
            self._max_hanging,
            _poll_interval_s(self._consumer_settings) / 2,
            TopicWatch(ids_from(self._consumer_settings)),
            self._local_retries,
        )
        loop.run([*self._topics, self._retry_topic], self._stopping.is_set)

    def _new_handling(self, runner: Runner) -> Handling:
        return Handling(
            runner,
            self._parallel,
            self._handler_timeout_s,
            self._may_begin,
            key_of=by_key_or_partition if self._local_retries else by_key,
        )


def _poll_interval_s(settings: dict[str, Any]) -> float:
    return int(settings.get("max.poll.interval.ms", MAX_POLL_INTERVAL_MS)) / 1000


def _at_least(least: int, number: object, name: str) -> int:
    if isinstance(number, int) and not isinstance(number, bool) and number >= least:
        return number
    raise ConfigRefused(f"{name} is {number!r}: it must be a whole number from {least}")


def _seconds(length: Delay, name: str) -> float:
    length_ms = parse_delay_ms(delay_text(length, name))
    if length_ms == 0:
        raise ConfigRefused(f"{name} is {length!r}: it must be longer than nothing")
    return length_ms / 1000


def _for_requests(config: Settings, given: Settings) -> dict[str, object]:
    """Settings of the producer: a request must be stored well before the group gives up on us."""
    refuse_no_mapping(given)
    if given.get(TRANSACTIONAL_ID):
        raise ConfigRefused(
            "producer_config has a transactional.id. A RetryConsumer works at least once, without "
            "transactions. Leave transactional.id out, and make handlers repeatable"
        )
    within = {"message.timeout.ms": STORE_WITHIN_MS}
    if {"message.timeout.ms", "delivery.timeout.ms"} & given.keys():
        within = {}
    settings = {**connection_settings(config), **within, **given}
    producer_settings(settings)
    need_all_acks(settings, "a retry request that a broker loses is a record that is lost")
    return settings
