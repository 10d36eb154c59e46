"""Half messages: records that are delivered only if the producer's local transaction commits.

A local transaction is a function of your program, for example a transaction in your database. If
its result is missing, the proxy asks for it with a record, the *check-back*.
The producer works like RocketMQ's TransactionMQProducer (docs/guide.md#half-messages).
"""

import logging
import threading
import uuid
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, Protocol, Self, Unpack

from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from kafka_delay import protocol
from kafka_delay.errors import BrokerError, ClientError, ConfigRefused
from kafka_delay.ingress_writer import IngressWriter
from kafka_delay.kafka import (
    TRANSACTIONAL_ID,
    Settings,
    UnreadableHeaders,
    broker_error,
    connection_settings,
    consumer_settings,
    headers_of,
    last_header,
    need_all_acks,
    place_of,
)
from kafka_delay.producer import CLOSE_WITHIN_S, MAX_BLOCK_S
from kafka_delay.request import (
    Data,
    Delay,
    DelayedRecord,
    Headers,
    Receipt,
    Request,
    SendOptions,
    WireHeaders,
    delay_text,
    id_bytes,
    request_of,
)
from kafka_delay.topics import ensure_topics

POLL_S: Final = 0.5
STOP_WITHIN_S: Final = 35.0
MOST_DIGITS: Final = 9

log = logging.getLogger("kafka_delay")


class State(Enum):
    """The result of a local transaction."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    UNKNOWN = "unknown"
    """The proxy asks again later."""


DECIDED: Final = (State.COMMIT, State.ROLLBACK)


@dataclass(frozen=True, slots=True)
class HalfMessage:
    """A half message, as a local transaction or a check-back sees it."""

    id: str
    topic: str | None
    """The target. None if a check-back does not name it."""
    key: bytes | None
    """The key at the target."""
    value: bytes | None
    headers: WireHeaders
    """The headers at the target."""
    check: int = 0
    """The number of the check-back, from 1. It is 0 in the local transaction."""

    def header(self, name: str) -> bytes | None:
        """Return the last header of that name, or None."""
        return last_header(self.headers, name)


LocalTransaction = Callable[[HalfMessage], State | None]


class TransactionListener(Protocol):
    """The part of a program that knows how its local transactions ended."""

    def check(self, half: HalfMessage) -> State:
        """Return the result of the local transaction of `half.id`.

        It is called later, perhaps in another process. So it must look up the result in a database.
        After UNKNOWN or an exception the proxy asks again.
        """


@dataclass(frozen=True, slots=True)
class TransactionResult:
    """The result of `send_in_transaction`."""

    id: str
    state: State
    half: Receipt
    """The receipt of the half message."""
    decision: Future[Receipt] | None
    """A future with the receipt of the commit or rollback. None if the state is UNKNOWN.

    If the future fails, a check-back decides.
    """


class TransactionalDelayProducer:
    """A producer of records that appear only if a local transaction succeeds.

    It stores a half message, runs the local transaction, then sends commit or rollback.
    If the process dies before the decision, the proxy sends a check-back to the check topic.

    - `config`: the settings of confluent_kafka.Producer, without `transactional.id`.
    - `listener`: its `check` answers check-backs.
    - `check_topic`: the topic of check-backs. It is created if it is missing.
    - `ingress`: the proxy's ingress topic.
    - `group`: the consumer group of check-backs. Any process of the group answers. The
      default is `<check_topic>.listeners`.
    - `consumer_config`: more settings for the consumer of check-backs.
    - `in_background`: answer check-backs in a thread. If it is False, call `serve_checks`.
    - `max_block_s`: the seconds that a request waits for room in librdkafka's queue.

    Raises ConfigRefused, TopicsMissing or BrokerError.
    """

    def __init__(
        self,
        config: Settings,
        listener: TransactionListener,
        check_topic: str,
        *,
        ingress: str = protocol.INGRESS,
        group: str | None = None,
        consumer_config: Settings | None = None,
        in_background: bool = True,
        max_block_s: float = MAX_BLOCK_S,
    ) -> None:
        given = {**connection_settings(config), **(consumer_config or {})}
        if TRANSACTIONAL_ID in config:
            raise ConfigRefused(
                "config has a transactional.id, but half messages are not Kafka transactions: "
                "leave it out"
            )
        need_all_acks(config, "a half message that a broker loses is never delivered")
        if not protocol.is_legal_topic(check_topic):
            raise ConfigRefused(f"the check topic is {check_topic!r}: {protocol.TOPIC_NAME_RULE}")
        if not callable(getattr(listener, "check", None)):
            raise ConfigRefused(f"the listener {listener!r} has no method check(half): add one")
        settings = consumer_settings(given, group or f"{check_topic}.listeners")
        self._check_topic = check_topic
        self._writer = IngressWriter(config, ingress, max_block_s)
        try:
            self._check_backs = CheckBacks(settings, check_topic, listener, self._writer)
        except BaseException:
            self._writer.close(0)
            raise
        self._is_in_background = in_background
        if in_background:
            self._check_backs.thread.start()
            self._finalizer = weakref.finalize(self, self._check_backs.stop)

    def send_in_transaction(
        self,
        topic: str,
        value: Data = None,
        key: Data = None,
        headers: Headers | None = None,
        *,
        local_transaction: LocalTransaction,
        immunity: Delay | None = None,
        **options: Unpack[SendOptions],
    ) -> TransactionResult:
        """Store the half message, run `local_transaction(half)`, and send its result.

        The local transaction should store `half.id`, so that `listener.check` can find it.
        If the local transaction returns UNKNOWN or None, a check-back decides.
        If it raises, this method raises the same exception, and a check-back decides.

        - `immunity`: the time before the first check-back, 6 s by default.
        - `id`: the transaction's id, a new UUID by default.
        - The other arguments are the arguments of `DelayProducer.send`.

        Raises RequestRefused or NotStored before the local transaction runs.
        """
        if (failure := self._check_backs.failure) is not None:
            raise ClientError(
                f"check-backs are no longer answered ({failure}): close this producer, then open "
                "another"
            ) from failure
        if (ident := options.get("id")) is None:
            ident = options["id"] = str(uuid.uuid4())
        record = DelayedRecord(topic, value, key, headers, **options)
        request = prepared(record, ident, self._check_topic, immunity)
        receipt = self._writer.write(request).result()
        half = half_of(request.key, request.value, request.headers)
        try:
            state: object = local_transaction(half)
        except BaseException as error:
            error.add_note(f"the half message {half.id} is left to the check-back")
            raise
        if not isinstance(state, State):
            if state is not None:
                log.error(
                    "%s: the local transaction returned %r, not a State; a check-back decides",
                    half.id,
                    state,
                )
            state = State.UNKNOWN
        decided = None if state is State.UNKNOWN else self._decide(half.id, state)
        return TransactionResult(half.id, state, receipt, decided)

    def serve_checks(self, timeout_s: float = 0.0) -> int:
        """Answer a check-back if one arrives within `timeout_s`. Return the number of answers."""
        if self._is_in_background:
            raise ClientError(
                "check-backs are answered in the background: open the producer with "
                "in_background=False to answer them here"
            )
        return self._check_backs.serve(timeout_s)

    def close(self, timeout_s: float = CLOSE_WITHIN_S) -> None:
        """Stop answering check-backs, and flush.

        Raises StillUnsent. The proxy then asks for the missing decisions.
        """
        self._check_backs.stop()
        self._check_backs.consumer.close()
        self._writer.close(timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _decide(self, ident: str, state: State) -> Future[Receipt]:
        try:
            decided = self._writer.write(decision(ident, state))
        except ClientError as error:
            decided = Future()
            decided.set_exception(error)
        decided.add_done_callback(_log_failure)
        return decided


class CheckBacks:
    """A consumer of check-backs, for one thread. It commits an offset when the answer is stored."""

    def __init__(
        self,
        settings: Settings,
        check_topic: str,
        listener: TransactionListener,
        writer: IngressWriter,
    ) -> None:
        self.failure: Exception | None = None
        """The error that ended the thread."""
        self._listener, self._writer = listener, writer
        self._settings, self._check_topic = settings, check_topic
        self._stopping = threading.Event()
        self.thread = threading.Thread(target=self._serve_all, name="check-backs", daemon=True)
        self.consumer = Consumer(dict(settings))
        try:
            ensure_topics(self.consumer, settings, [check_topic])
            self.consumer.subscribe([check_topic])
        except BaseException as error:
            self.consumer.close()
            if isinstance(error, KafkaException):
                raise self._broker_error(error.args[0]) from error
            raise

    def serve(self, timeout_s: float) -> int:
        """Answer a check-back if one arrives within `timeout_s`. Return the number of answers.

        Raises ClientError.
        """
        message = self.consumer.poll(timeout_s)
        if message is None:
            return 0
        if (error := message.error()) is not None:
            if error.fatal():
                raise self._broker_error(error)
            log.warning("check-backs continue after an error: %s", self._broker_error(error))
            return 0
        answered = self._answer(message)
        self.consumer.commit(message=message, asynchronous=True)
        return answered

    def stop(self) -> None:
        self._stopping.set()
        if self.thread.ident is not None:
            self.thread.join(STOP_WITHIN_S)

    def _serve_all(self) -> None:
        while not self._stopping.is_set():
            try:
                self.serve(POLL_S)
            except Exception as error:
                if isinstance(error, BrokerError) or not isinstance(error, ClientError):
                    log.exception("check-backs are no longer answered")
                    self.failure = error
                    return
                log.warning("an answer was not stored; the proxy will ask again: %s", error)

    def _broker_error(self, error: KafkaError) -> BrokerError:
        group = str(self._settings.get("group.id"))
        return broker_error(error, self._settings, group, [self._check_topic])

    def _answer(self, message: Message) -> int:
        half: HalfMessage | None = None
        with suppress(UnreadableHeaders):
            half = check_back(message.key(), message.value(), headers_of(message))
        if half is None:
            log.warning("%s is no check-back and is skipped", place_of(message))
            return 0
        try:
            state = self._listener.check(half)
        except Exception:
            log.exception("%s: the listener's check raised; the proxy will ask again", half.id)
            state = State.UNKNOWN
        if state not in DECIDED:
            return 0
        self._writer.write(decision(half.id, state)).result()
        return 1


def prepared(
    record: DelayedRecord, ident: str | bytes, check_topic: str, immunity: Delay | None
) -> Request:
    """Return the request of a half message. Raises RequestRefused."""
    request = request_of(replace(record, id=ident))
    asked: WireHeaders = [
        (protocol.TRANSACTION, protocol.PREPARE),
        (protocol.CHECK_TOPIC, check_topic.encode()),
    ]
    if immunity is not None:
        asked.append((protocol.CHECK_IMMUNITY, delay_text(immunity, "immunity").encode()))
    return replace(request, headers=asked + request.headers)


def decision(ident: str, state: State) -> Request:
    """Return the request to commit or roll back a half message. Raises RequestRefused."""
    key = id_bytes(ident)
    return Request(key, None, [(protocol.TRANSACTION, state.value.encode()), (protocol.ID, key)])


def check_back(key: bytes | None, value: bytes | None, headers: WireHeaders) -> HalfMessage | None:
    """Return the half message of a check-back, or None for other records."""
    asked = dict(headers)
    is_one = asked.get(protocol.TRANSACTION) == protocol.CHECK_BACK and asked.get(protocol.ID)
    return half_of(key, value, headers) if is_one else None


def half_of(key: bytes | None, value: bytes | None, headers: WireHeaders) -> HalfMessage:
    """Return the half message from its own record, or from a check-back."""
    asked = dict(headers)
    topic, check = asked.get(protocol.TOPIC), asked.get(protocol.CHECK)
    return HalfMessage(
        (asked.get(protocol.ID) or b"").decode("utf-8", "replace"),
        None if topic is None else topic.decode("utf-8", "replace"),
        asked.get(protocol.KEY, key),
        value,
        [header for header in headers if not header[0].startswith(protocol.PREFIX)],
        int(check) if check and check.isdigit() and len(check) <= MOST_DIGITS else 0,
    )


def _log_failure(decided: Future[Receipt]) -> None:
    if (error := decided.exception()) is not None:
        log.warning("a decision was not stored; the proxy will ask for it: %s", error)
