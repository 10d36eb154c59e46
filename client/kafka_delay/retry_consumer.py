"""Consumers that retry failed records later, through the proxy."""

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
"""librdkafka's default. A rebalance waits at most this long for a member."""

HandlerT = TypeVar("HandlerT")

log = logging.getLogger("kafka_delay")


class _Consumer(ABC, Generic[HandlerT]):
    """The options of both consumers, and the code that runs them."""

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
        """The records of the last run, whose handlers may still run."""

    def stop(self) -> None:
        """Make `run` return once its running handlers have ended.

        May be called in any thread, or in a signal handler.
        """
        self._stopping.set()

    @abstractmethod
    def _refuse_unusable(self, handler: Any) -> None:
        """Raise ConfigRefused if this consumer cannot call the handler."""

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
                    log.info("the consumer is opened again, because topics were recreated")
        finally:
            with suppress(StillUnsent):  # the records of unstored requests are read again
                writer.close(CLOSE_WITHIN_S)

    def _is_done(self, writer: IngressWriter, handling: Handling) -> bool:
        """Run one consumer. Return False if a new consumer must continue."""
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
    """A consumer that calls `handler` for each record, and retries failed records later.

    If the handler raises, the record comes again after 10 s, then after 30 s, 1 m, 2 m and so on.
    The record goes to `dlq.<group>` after `max_attempts` retries, or if the handler raises
    DeadLetter. A handler that raises RetryLater chooses the delay. Other records do not wait.
    Each record is handled at least once. After a crash, records and their retries may come twice.

    - `config`: the settings of confluent_kafka.Consumer. `enable.auto.commit`,
      `auto.offset.reset=latest` and `isolation.level=read_uncommitted` are refused.
    - `producer_config`: more settings for the producer of retry requests. `transactional.id`, and
      `acks` other than `all`, are refused.
    - `group`: the consumer group. Its topics are `retry.<group>` and `dlq.<group>`. They are
      created if they are missing.
    - `topics`: names, or regular expressions that begin with `^`.
    - `handler`: a function that takes a Received. It must be thread-safe.
    - `ingress`: the proxy's ingress topic.
    - `retry_topic`, `max_attempts`: the retry topic, and the number of retries (16). Without
      `orderly` the proxy decides both (settings `topics.retry_prefix` and `retry`). If you changed
      those settings, give their values here, too. If you give a `retry_topic`, create the
      dead-letter topic yourself.
    - `give_up`, `ignore`, `retry`: lists of exception classes. After an exception in `give_up` the
      record becomes a dead letter without a retry. After an exception in `ignore` the
      record counts as handled. After an exception in `retry`, or in no list, it is retried. If
      several classes match, the most specific one counts.
    - `parallel`: the number of threads that run handlers (1). Records with equal keys are handled
      in order.
    - `handler_timeout`: a timedelta or text (15 minutes). After this time the handler counts as
      failed. Its thread may still run, even beside the next call for the same record or key.
    - `max_hanging`: the number of handlers that may run beyond their timeout (10). If there are
      more, `run` raises HandlersHang.
    - `orderly`: keep a failed record and try it again (docs/client.md#in-order-whatever-fails).
      Other records with its key wait. Long delays may pause a busy partition.
    - `orderly_delays`: the delays of `orderly`, such as `1s 5s 1m`. The last one repeats.
      The default is `1s 5s 10s 30s 1m 2m` and so on to `2h`.
    - `signing_key`: a key that all members of the group share. It signs retries. Retries without a
      valid signature become dead letters. To change keys, give a list: the first key signs, each
      key verifies (docs/client.md#forged-retries).

    Raises ConfigRefused, or RequestRefused for an unreadable `handler_timeout`.
    """

    def run(self) -> None:
        """Work until `stop`. Then commit the offsets of handled records, and leave the group.

        Raises RetryNotStored, BrokerError, TopicsMissing, and a handler's SystemExit.
        Raises HandlersHang after the retry requests are stored. Later calls raise it, too, while
        handlers hang.
        Raises ClientError if no broker takes the last commit within 10 s.
        """
        self._run_with(handlers.HandlerThreads(self._handler, self._parallel))

    def _refuse_unusable(self, handler: Any) -> None:
        """Raise ConfigRefused for a coroutine function, because calls of it do nothing."""
        if not callable(handler):
            raise ConfigRefused(f"the handler is {handler!r}: give a function of one record")
        if iscoroutinefunction(handler) or iscoroutinefunction(type(handler).__call__):
            raise ConfigRefused(
                f"the handler {handler!r} is a coroutine function, and this consumer awaits none: "
                "use AsyncRetryConsumer"
            )


class AsyncRetryConsumer(_Consumer[AsyncHandler]):
    """A RetryConsumer whose handlers are tasks of the event loop that awaits `run`.

    Takes the arguments of RetryConsumer. `handler` is a coroutine function.
    A thread polls, so the consumer keeps its partitions while the loop is busy.
    A handler beyond `handler_timeout` is cancelled. It may ignore the cancellation and still run.
    If other code cancels a task that a handler awaits, the handler fails (AwaitedWasCancelled).
    A handler that blocks the loop blocks all others. After it has timed out, the consumer waits for
    a further `handler_timeout` (at least 10 s). If no other handler has begun by then, the consumer
    leaves its group, and `run` raises HandlersHang.
    """

    async def run(self) -> None:
        """Work until `stop`. Then commit the offsets of handled records, and leave the group.

        Raises the errors of RetryConsumer's `run`.
        If `run` is cancelled, it cancels its handlers. The records of these handlers come again.
        """
        tasks = handlers.HandlerTasks(self._handler, asyncio.get_running_loop())
        ended: Future[None] = Future()

        def work() -> None:
            try:
                self._run_with(tasks)
            except BaseException as error:  # noqa: BLE001 (raised again where `run` is awaited)
                log.error(
                    "the consumer has left its group: %s", error
                )  # also if the loop is blocked
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
                f"topics has {topic!r}, where this consumer's failures go: they would come "
                "again for ever. Read this topic in another group"
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
        raise ConfigRefused(f"{name} is {length!r}: it must be longer than 0")
    return length_ms / 1000


def _for_requests(config: Settings, given: Settings) -> dict[str, Any]:
    """Return the settings of the producer of retry requests.

    A request must be stored, or fail, before the group excludes this member.
    """
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
    need_all_acks(settings, "a record is lost if a broker loses its retry request")
    return settings
