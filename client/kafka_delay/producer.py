"""Producers of delayed records, for threads and for asyncio."""

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Any, Final, Generic, Self, TypeVar, Unpack

from confluent_kafka import KafkaError, Producer

from kafka_delay.errors import FORGETS, ClientError, NotStored, QueueFull, TransactionFailed
from kafka_delay.ingress_writer import IngressWriter, OnDelivery
from kafka_delay.kafka import Settings
from kafka_delay.protocol import INGRESS
from kafka_delay.request import (
    Data,
    DelayedRecord,
    Headers,
    Options,
    Receipt,
    Request,
    SendOptions,
    cancellation,
    recall,
    request_of,
)
from kafka_delay.transactions import Transactions

MAX_BLOCK_S: Final = 60.0
CLOSE_WITHIN_S: Final = 30.0
TRANSACTION_STEP_WITHIN_S: Final = 60.0
LOOK_EVERY_S: Final = 0.01
MOST_IN_FLIGHT: Final = 10_000
MOST_IN_FLIGHT_BYTES: Final = 32 * 1024 * 1024
ABORTED: Final = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})  # noqa: SLF001
"""The errors of records in an aborted transaction."""

SentT = TypeVar("SentT")

log = logging.getLogger("kafka_delay")


class BatchFailed(ClientError):
    """Some records of a batch are not stored. Send these records again."""

    def __init__(
        self, receipts: Sequence[Receipt | None], failures: Mapping[int, ClientError], what: str
    ) -> None:
        index, first = min(failures.items())
        super().__init__(f"{what}; record {index}: {first}")
        self.receipts = list(receipts)
        """The receipt of each record that was sent, in order. None for a record that failed."""
        self.failures = dict(failures)
        """The error of each failed record, by the record's index."""


class _Producer(ABC, Generic[SentT]):
    """The requests that both producers can send."""

    _may_block = True

    def __init__(
        self, config: Settings, *, ingress: str = INGRESS, max_block_s: float = MAX_BLOCK_S
    ) -> None:
        self._writer = IngressWriter(config, ingress, max_block_s if self._may_block else 0)
        self._max_block_s = max_block_s
        self._transactions = Transactions(self._writer, TRANSACTION_STEP_WITHIN_S)

    def send(
        self,
        topic: str,
        value: Data = None,
        key: Data = None,
        headers: Headers | None = None,
        *,
        on_delivery: OnDelivery | None = None,
        **options: Unpack[SendOptions],
    ) -> SentT:
        """Send a record that appears in `topic` later, or immediately if no time is given.

        Return the future of its Receipt. The asyncio producer returns the Receipt.

        At most one time may be given:

        - `delay`: a timedelta, or text such as `30s`.
        - `deliver_at`: an aware datetime, epoch milliseconds, or RFC 3339 text with a zone.
        - `level`: a delay level. Level 1 is the shortest.

        `id` names the record for `cancel`. If a record with the same id is pending, the new record
        replaces it.
        `partition` is the target's partition. Without it the key decides.
        `on_delivery(error, message)` runs before the future is done, in the producer's thread or in
        a flushing thread.

        Raises RequestRefused for an argument that the proxy could not serve.
        Raises NotStored if the record cannot be sent. The future may raise it, too.
        Raises QueueFull if the queue stays full for `max_block_s`.
        """
        record = DelayedRecord(topic, value, key, headers, **options)
        return self._sent(request_of(record), on_delivery)

    def replace(
        self,
        id: str | bytes,  # noqa: A002 (the protocol's word)
        topic: str,
        value: Data = None,
        key: Data = None,
        headers: Headers | None = None,
        *,
        on_delivery: OnDelivery | None = None,
        **options: Unpack[Options],
    ) -> SentT:
        """Send a record that replaces the pending record of its id as a whole.

        Takes the arguments of `send`, and returns and raises as `send`.
        """
        return self.send(topic, value, key, headers, on_delivery=on_delivery, id=id, **options)

    def cancel(
        self,
        id: str | bytes,  # noqa: A002 (the protocol's word)
        on_delivery: OnDelivery | None = None,
    ) -> SentT:
        """Ask the proxy to cancel the pending record of an id.

        Return the cancel's receipt, as `send` does.
        Its outcome in `timer.outcomes` is `applied`, or `missed` if it came too late.
        """
        return self._sent(cancellation(id), on_delivery)

    def recall(
        self,
        receipt: Receipt | str,
        on_delivery: OnDelivery | None = None,
        *,
        key: Data = None,
        id: str | bytes | None = None,  # noqa: A002 (the protocol's word)
    ) -> SentT:
        """Ask the proxy to cancel the record of a receipt or origin.

        Return the recall's receipt, as `send` does. Its outcome is `applied` or `missed`.
        With an origin, also give the record's `key` or `id`, as proof.
        A recall costs the proxy more than `cancel`.
        """
        return self._sent(recall(receipt, self.ingress, key, id), on_delivery)

    @property
    def ingress(self) -> str:
        return self._writer.ingress

    @abstractmethod
    def _sent(self, request: Request, on_delivery: OnDelivery | None) -> SentT: ...


class DelayProducer(_Producer[Future[Receipt]]):
    """A producer of delayed records. They can be cancelled and replaced until they appear.

    Each request returns a future, which completes without a call of `poll`.
    Threads may share a producer. A forked process needs its own.
    Close it, or use `with`. Otherwise queued records are lost.

    - `config`: the settings of confluent_kafka.Producer. Defaults are acks=all and idempotence.
      `acks=0` is refused, because there would be no receipts. Partitioners other than Java's are
      refused, because a cancel must reach the partition of its record.
    - `ingress`: the proxy's ingress topic.
    - `max_block_s`: the seconds that a request waits for room in librdkafka's queue.

    Raises ConfigRefused.
    """

    def send_batch(
        self, records: Iterable[DelayedRecord], *, transaction: bool = False
    ) -> list[Receipt]:
        """Send records, and return all receipts in order.

        Any iterable works. At most 10,000 records or 32 MiB wait for the broker at a time.
        Without `transaction`, some records may fail while the others are stored.

        With `transaction`, all records are stored, or no record is. The producer needs a
        `transactional.id`. The batch must end within `transaction.timeout.ms` (60 s by default).
        If `records` is a list, a batch whose transaction was aborted is sent a second time, unless
        one of its records caused the abort. For example, the transaction is aborted if the broker
        has forgotten a `transactional.id` that was not used for a week.

        Raises BatchFailed, and the errors of `transaction`.
        """
        if not transaction:
            return Batch(self._writer, is_all_or_nothing=False).write(records)
        try:
            return self._send_at_once(records)
        except (BatchFailed, TransactionFailed) as error:
            if not isinstance(records, Sequence) or not _may_be_sent_again(error):
                raise
            log.info("a batch is sent again, because its transaction was aborted: %s", error)
            return self._send_at_once(records)

    def _send_at_once(self, records: Iterable[DelayedRecord]) -> list[Receipt]:
        with self.transaction():
            return Batch(self._writer, is_all_or_nothing=True).write(records)

    def transaction(self) -> AbstractContextManager[None]:
        """Store all records of a `with` block together at its end, or none if the block raises.

        Records of other threads, and records sent through `producer`, are included.

        Raises ConfigRefused without a `transactional.id`.
        Raises TransactionFailed, TransactionInDoubt or ProducerFenced.
        """
        return self._transactions.transaction()

    @property
    def producer(self) -> Producer:
        """Return the confluent_kafka.Producer, for records that need no delay. Do not poll it."""
        return self._writer.producer

    def flush(self, timeout_s: float | None = None) -> int:
        """Wait until the broker has all records, at most `timeout_s` (None: for ever).

        Return the number of unconfirmed records.
        """
        return self._writer.flush(timeout_s)

    def close(self, timeout_s: float = CLOSE_WITHIN_S) -> None:
        """Flush and end. Raises StillUnsent if records are unconfirmed after `timeout_s`."""
        self._writer.close(timeout_s)

    def _sent(self, request: Request, on_delivery: OnDelivery | None) -> Future[Receipt]:
        return self._writer.write(request, on_delivery)

    def __len__(self) -> int:
        return len(self._writer)

    def __bool__(self) -> bool:
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


class AsyncDelayProducer(_Producer[Coroutine[Any, Any, Receipt]]):
    """A DelayProducer for asyncio, without batches and transactions.

    Takes the arguments of DelayProducer.
    Each request is awaited, and returns its receipt once the broker has the record.
    A full queue does not block the loop. Close the producer, or use `async with`.
    """

    _may_block = False

    async def close(self, timeout_s: float = CLOSE_WITHIN_S) -> None:
        """Flush and end. Raises StillUnsent if records are unconfirmed after `timeout_s`."""
        await asyncio.to_thread(self._writer.close, timeout_s)

    async def _sent(self, request: Request, on_delivery: OnDelivery | None) -> Receipt:
        deadline_s = time.monotonic() + self._max_block_s
        while True:
            try:
                future = self._writer.write(request, on_delivery)
            except QueueFull:
                if time.monotonic() >= deadline_s:
                    raise
                await asyncio.sleep(LOOK_EVERY_S)
            else:
                return await asyncio.wrap_future(future)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()


class Batch:
    """The records of one call of `send_batch`. A limited number waits for the broker at a time."""

    def __init__(self, writer: IngressWriter, *, is_all_or_nothing: bool) -> None:
        self._writer = writer
        self._is_all_or_nothing = is_all_or_nothing
        self._in_flight: deque[tuple[int, int, Future[Receipt]]] = deque()
        """Index, bytes and future of each record that the broker has not confirmed."""
        self._in_flight_bytes = 0
        self._receipts: list[Receipt | None] = []
        self._failures: dict[int, ClientError] = {}

    def write(self, records: Iterable[DelayedRecord]) -> list[Receipt]:
        """Write all records, and return all receipts in order. Raises BatchFailed."""
        for number, record in enumerate(records):
            self._receipts.append(None)
            try:
                self._write(number, record)
            except ClientError as error:
                self._failures[number] = error
            failures = self._failures.values()
            if any(self._is_all_or_nothing or _ends_all(one) for one in failures):
                break
        while self._in_flight:
            self._await_oldest()
        if not self._failures:
            return [receipt for receipt in self._receipts if receipt is not None]
        tried, what = len(self._receipts), "none of the batch is stored"
        if self._is_all_or_nothing:
            raise BatchFailed([None] * tried, self._failures, what)
        what = f"{len(self._failures)} of {tried} records are not stored"
        raise BatchFailed(self._receipts, self._failures, what)

    def _write(self, number: int, record: DelayedRecord) -> None:
        request = request_of(record)
        size_bytes = request.size_bytes
        while self._in_flight and (
            len(self._in_flight) >= MOST_IN_FLIGHT
            or self._in_flight_bytes + size_bytes > MOST_IN_FLIGHT_BYTES
        ):
            self._await_oldest()
        self._in_flight.append((number, size_bytes, self._writer.write(request)))
        self._in_flight_bytes += size_bytes

    def _await_oldest(self) -> None:
        number, size_bytes, future = self._in_flight.popleft()
        self._in_flight_bytes -= size_bytes
        try:
            self._receipts[number] = future.result()
        except ClientError as error:
            self._failures[number] = error


def _ends_all(error: ClientError) -> bool:
    """Return whether the next records of the batch would fail, too."""
    return isinstance(error, QueueFull) or (isinstance(error, NotStored) and error.error.fatal())


def _may_be_sent_again(error: BatchFailed | TransactionFailed) -> bool:
    """Return whether a transaction was aborted, and no record caused it."""
    if isinstance(error, TransactionFailed):
        return error.error.code() in FORGETS and not error.error.fatal()
    failures = error.failures.values()
    return all(isinstance(one, NotStored) and one.error.code() in ABORTED for one in failures)
