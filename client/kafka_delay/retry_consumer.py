"""Consumers that retry failed records later, through the proxy (RocketMQ's retry levels)."""

import asyncio
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import closing, suppress
from datetime import timedelta
from inspect import iscoroutinefunction, isroutine
from typing import Any, Final, Generic, TypeVar

from confluent_kafka import Consumer, KafkaException

from kafka_delay import handlers, retries
from kafka_delay.consumer_loop import ConsumerLoop, LogsBeganAnew
from kafka_delay.errors import ConfigRefused, StillUnsent
from kafka_delay.handlers import AsyncHandler, Handler, Handling, Runner
from kafka_delay.ingress_writer import IngressWriter
from kafka_delay.kafka import (
    TRANSACTIONAL_ID,
    Settings,
    broker_error,
    connection_settings,
    consumer_settings,
    need_all_acks,
    producer_settings,
    refuse_no_mapping,
)
from kafka_delay.protocol import INGRESS, TOPIC_NAME_RULE, is_legal_topic, parse_delay_ms
from kafka_delay.request import Delay, delay_text
from kafka_delay.retries import MAX_ATTEMPTS, Exceptions, FailureRules, RetryPlan, SigningKey
from kafka_delay.topics import ensure_topics, ids_from

HANDLER_TIMEOUT: Final = timedelta(minutes=15)
MAX_HANGING: Final = 10
STORE_WITHIN_MS: Final = 30_000
CLOSE_WITHIN_S: Final = 10.0
MAX_POLL_INTERVAL_MS: Final = 300_000
"""librdkafka's default, which limits the wait for members in a rebalance."""

HandlerT = TypeVar("HandlerT")

log = logging.getLogger("kafka_delay")


class _Consumer(ABC, Generic[HandlerT]):
    """The common part of both consumers."""

    def __init__(
        self,
        config: Settings,
        group: str,
        topics: Sequence[str],
        handler: HandlerT,
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
        self._refuse_unusable(handler)
        self._plan = RetryPlan(
            group,
            _checked_topics(topics, group, ingress),
            f"retry.{group}" if retry_topic is None else _legal("retry_topic", retry_topic),
            _at_least(1, max_attempts, "max_attempts"),
            FailureRules(retry, give_up, ignore),
            target=retry_topic,
            delays_ms=retries.orderly_delays_ms(orderly, orderly_delays),
            signer=None if signing_key is None else retries.Signer(group, signing_key),
        )
        self._read_topics = [*self._plan.topics, self._plan.retry_topic]
        self._handler, self._ingress = handler, ingress
        self._parallel = _at_least(1, parallel, "parallel")
        self._handler_timeout_s = _seconds(handler_timeout, "handler_timeout")
        self._max_hanging = _at_least(0, max_hanging, "max_hanging")
        self._consumer_settings = consumer_settings(config, group)
        self._producer_settings = _for_requests(config, producer_config or {})
        self._stopping = threading.Event()
        self._handling: Handling | None = None
        """The last run's, whose handlers may still run."""

    def stop(self) -> None:
        """Make `run` return after its current records. For any thread or signal handler."""
        self._stopping.set()

    @abstractmethod
    def _refuse_unusable(self, handler: Any) -> None:
        """Raise ConfigRefused."""

    def _run_with(self, runner: Runner) -> None:
        if self._handling is not None:
            self._handling.raise_if_too_many_hang(self._max_hanging)
        writer = IngressWriter(self._producer_settings, self._ingress, STORE_WITHIN_MS / 1000)
        try:
            with closing(runner):
                handling = self._handling = Handling(
                    runner,
                    self._parallel,
                    self._handler_timeout_s,
                    lambda: not self._stopping.is_set(),
                    key_of=(
                        handlers.by_key_or_partition if self._plan.delays_ms else handlers.by_key
                    ),
                )
                while not self._is_done(writer, handling):
                    log.info("another consumer is opened")
        finally:
            with suppress(StillUnsent):  # the offsets of unstored requests are uncommitted
                writer.close(CLOSE_WITHIN_S)

    def _is_done(self, writer: IngressWriter, handling: Handling) -> bool:
        """Run one consumer. Return False if another must continue."""
        plan, settings = self._plan, self._consumer_settings
        poll_interval_ms = settings.get("max.poll.interval.ms", MAX_POLL_INTERVAL_MS)
        own = [] if plan.target else [f"dlq.{plan.group}"]
        try:
            with closing(Consumer(settings)) as consumer:
                ensure_topics(consumer, settings, [plan.retry_topic, *own])
                ConsumerLoop(
                    consumer,
                    writer,
                    handling,
                    plan,
                    ids_from(settings),
                    self._max_hanging,
                    revoke_within_s=int(poll_interval_ms) / 1000 / 2,
                ).run(self._read_topics, self._stopping.is_set)
        except LogsBeganAnew:
            return False
        except KafkaException as error:
            raise broker_error(error.args[0], settings, plan.group, self._read_topics) from error
        return True


class RetryConsumer(_Consumer[Handler]):
    """A consumer that calls `handler` for each record and retries failed ones later.

    If the handler raises, the record goes to `retry.<group>` after 10 s, then 30 s, 1 m, 2 m and so
    on. After `max_attempts` failures or a DeadLetter it goes to `dlq.<group>`. RetryLater chooses
    the delay. Other records continue. Missing topics are created.

    `parallel` handlers run in threads; records with equal keys are handled in order. After
    `handler_timeout` a handler has failed, but its thread may continue. With more than
    `max_hanging` such threads `run` raises HandlersHang.

    Exceptions in `give_up` cause a dead letter. Exceptions in `ignore` count as success. `retry`
    overrides both. The most specific class counts.

    With `orderly` a failed record keeps its key and is tried again in place, after `orderly_delays`
    such as `1s 5s 1m` (docs/client.md#in-order-whatever-fails).

    `config` is confluent_kafka.Consumer's. `producer_config` is added for the producer of retry
    requests. Offsets are committed once all records before are done. A crash repeats later records
    and perhaps their retries.

    `signing_key` (equal for all members) signs retries. Retries without a valid signature become
    dead letters. To change keys give a list: the first signs, all verify
    (docs/client.md#forged-retries).

    Unless `orderly`, the proxy gives up by its own settings. If they differ from the defaults, give
    the same as `retry_topic` and `max_attempts`, and create the dead-letter topic yourself.
    """

    def run(self) -> None:
        """Work until `stop`. Then commit handled records, leave the group and return.

        Raises RetryNotStored, HandlersHang, BrokerError, and BaseExceptions of handlers.
        """
        self._run_with(handlers.HandlerThreads(self._handler, self._parallel))

    def _refuse_unusable(self, handler: Any) -> None:
        """A coroutine would be taken for success and never run."""
        if not callable(handler):
            raise ConfigRefused(f"the handler is {handler!r}: give a function of one record")
        if iscoroutinefunction(handler) or iscoroutinefunction(type(handler).__call__):
            raise ConfigRefused(
                f"the handler {handler!r} is a coroutine function, which nobody would await: use "
                "AsyncRetryConsumer"
            )


class AsyncRetryConsumer(_Consumer[AsyncHandler]):
    """A RetryConsumer whose `parallel` handlers are tasks of the event loop.

    A thread polls, so a busy loop keeps its partitions. Timed-out handlers are cancelled.
    """

    async def run(self) -> None:
        """Work until `stop`. Then commit handled records, leave the group and return.

        Raises as RetryConsumer's `run`. If cancelled, it cancels its handlers and commits.
        """
        tasks = handlers.HandlerTasks(self._handler, asyncio.get_running_loop())
        ended: Future[None] = Future()

        def work() -> None:
            try:
                self._run_with(tasks)
            except BaseException as error:  # noqa: BLE001 (raised again where `run` is awaited)
                log.error("the consumer has left its group: %s", error)  # the loop may be blocked
                ended.set_exception(error)
            else:
                ended.set_result(None)

        threading.Thread(target=work, name="retry-consumer", daemon=True).start()
        working = asyncio.wrap_future(ended)
        try:
            await asyncio.shield(working)
        except asyncio.CancelledError:
            self.stop()
            tasks.cancel_all()
            with suppress(BaseException):
                await working
            raise

    def _refuse_unusable(self, handler: Any) -> None:
        if not callable(handler):
            raise ConfigRefused(f"the handler is {handler!r}: give a coroutine function")
        if isroutine(handler) and not iscoroutinefunction(handler):
            raise ConfigRefused(
                f"the handler {handler!r} is no coroutine function: write `async def`, or use "
                "RetryConsumer"
            )


def _checked_topics(topics: object, group: object, ingress: object) -> list[str]:
    """Return the topics to read. Raises ConfigRefused."""
    if not isinstance(group, str) or not group or not is_legal_topic(f"retry.{group}"):
        raise ConfigRefused(f"group is {group!r}, which names no topic: {TOPIC_NAME_RULE}")
    _legal("ingress", ingress)
    if isinstance(topics, str) or not isinstance(topics, Sequence) or not topics:
        raise ConfigRefused(f"topics is {topics!r}: give a list of at least one topic")
    for topic in topics:
        if not isinstance(topic, str) or not topic.startswith(retries.BY_PATTERN):
            _legal("topics", topic)
        if topic in {f"dlq.{group}", ingress}:
            raise ConfigRefused(
                f"topics has {topic!r}, where this consumer's failures go: they would never end; "
                "read it in a group of its own"
            )
    return list(topics)


def _legal(name: str, topic: object) -> str:
    if isinstance(topic, str) and is_legal_topic(topic):
        return topic
    raise ConfigRefused(f"{name} is {topic!r}, which names no topic: {TOPIC_NAME_RULE}")


def _at_least(least: int, number: object, name: str) -> int:
    if isinstance(number, int) and not isinstance(number, bool) and number >= least:
        return number
    raise ConfigRefused(f"{name} is {number!r}: it must be a whole number from {least}")


def _seconds(length: Delay, name: str) -> float:
    length_ms = parse_delay_ms(delay_text(length, name))
    if length_ms == 0:
        raise ConfigRefused(f"{name} is {length!r}: it must be longer than nothing")
    return length_ms / 1000


def _for_requests(config: Settings, given: Settings) -> dict[str, Any]:
    """Return producer settings that store requests before the group expels this member."""
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
