"""Producers of delayed records, blocking and for asyncio."""

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
"""Errors of records in an aborted transaction."""

SentT = TypeVar("SentT")

log = logging.getLogger("kafka_delay")


class BatchFailed(ClientError):
    """Some records of a batch failed: None in `receipts`, and an error by index in `failures`."""

    def __init__(
        self, receipts: Sequence[Receipt | None], failures: Mapping[int, ClientError], what: str
    ) -> None:
        index, first = min(failures.items())
        super().__init__(f"{what}; record {index}: {first}")
        self.receipts = list(receipts)
        self.failures = dict(failures)


class _Producer(ABC, Generic[SentT]):
    """The requests of both producers."""

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
        """Send a record that appears in `topic` later; without a time, at once.

        Give at most one of `delay` (timedelta, or text such as `30s`), `deliver_at` (aware
        datetime, epoch milliseconds, RFC 3339 text) and `level` (1 is the shortest). An `id`
        replaces its pending record and allows a cancel. `partition` is the target's. Return the
        Receipt, or its future. `on_delivery(error, message)` is called first, in a thread of the
        producer or one that flushes. Raises RequestRefused, NotStored, or QueueFull after
        `max_block_s`.
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
        """Send a complete new record in place of the pending one of that id."""
        return self.send(topic, value, key, headers, on_delivery=on_delivery, id=id, **options)

    def cancel(
        self,
        id: str | bytes,  # noqa: A002 (the protocol's word)
        on_delivery: OnDelivery | None = None,
    ) -> SentT:
        """Ask to cancel the pending record of that id.

        The outcomes topic reports `applied` or `missed` under the receipt's origin.
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
        """Ask to cancel the record of this receipt or origin. Costs more than `cancel`.

        Beside an origin give the record's `key` or `id` as proof. The outcomes topic reports the
        result.
        """
        return self._sent(recall(receipt, self.ingress, key, id), on_delivery)

    @property
    def ingress(self) -> str:
        return self._writer.ingress

    @abstractmethod
    def _sent(self, request: Request, on_delivery: OnDelivery | None) -> SentT: ...


class DelayProducer(_Producer[Future[Receipt]]):
    """A producer of records that appear later, and can be cancelled and replaced until then.

    `config` is confluent_kafka.Producer's. Defaults are acks=all and idempotence. Partitioners
    other than Java's are refused, since cancels must meet their records. Requests return futures.
    Threads may share a producer, processes may not. Close it, or use `with`, or queued records are
    lost.
    """

    def send_batch(
        self, records: Iterable[DelayedRecord], *, transaction: bool = False
    ) -> list[Receipt]:
        """Send records in bounded memory and return all receipts in order.

        With `transaction` all records are one Kafka transaction, which needs `transactional.id` and
        must end within `transaction.timeout.ms` (60 s). If it is aborted through no fault of a
        record, a list is sent once more: an idle producer may have lost its id. Raises BatchFailed
        and the errors of `transaction`.
        """
        if not transaction:
            return Batch(self._writer, is_all_or_nothing=False).write(records)
        try:
            return self._send_at_once(records)
        except (BatchFailed, TransactionFailed) as error:
            if not isinstance(records, Sequence) or not _may_be_sent_again(error):
                raise
            log.info("a batch is sent once more, for its transaction was aborted: %s", error)
            return self._send_at_once(records)

    def _send_at_once(self, records: Iterable[DelayedRecord]) -> list[Receipt]:
        with self.transaction():
            return Batch(self._writer, is_all_or_nothing=True).write(records)

    def transaction(self) -> AbstractContextManager[None]:
        """Store the records of a `with` block as a whole, or not at all.

        Other threads' records and those of `producer` are included. Raises ConfigRefused without
        `transactional.id`, TransactionFailed, TransactionInDoubt or ProducerFenced.
        """
        return self._transactions.transaction()

    @property
    def producer(self) -> Producer:
        """Return the confluent_kafka.Producer, for records without delay. Do not poll it."""
        return self._writer.producer

    def flush(self, timeout_s: float | None = None) -> int:
        """Wait for the broker. Return the number of records left after `timeout_s`."""
        return self._writer.flush(timeout_s)

    def close(self, timeout_s: float = CLOSE_WITHIN_S) -> None:
        """Flush and end. Raises StillUnsent if records are unconfirmed in time."""
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
    """A DelayProducer for asyncio, without transactions. Await requests; close it at the end."""

    _may_block = False

    async def close(self, timeout_s: float = CLOSE_WITHIN_S) -> None:
        """Flush and end. Raises StillUnsent if records are unconfirmed in time."""
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
    """The records of one call, sent in bounded memory."""

    def __init__(self, writer: IngressWriter, *, is_all_or_nothing: bool) -> None:
        self._writer = writer
        self._is_all_or_nothing = is_all_or_nothing
        self._in_flight: deque[tuple[int, int, Future[Receipt]]] = deque()
        """Number, bytes and future of each record that the broker has not confirmed."""
        self._in_flight_bytes = 0
        self._receipts: list[Receipt | None] = []
        self._failures: dict[int, ClientError] = {}

    def write(self, records: Iterable[DelayedRecord]) -> list[Receipt]:
        """Write all records and return all receipts in order. Raises BatchFailed."""
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
        tried, what = len(self._receipts), "the whole batch was taken back"
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
    """Return whether the next record would fail too, as after a fatal error."""
    return isinstance(error, QueueFull) or (isinstance(error, NotStored) and error.error.fatal())


def _may_be_sent_again(error: BatchFailed | TransactionFailed) -> bool:
    """Return whether the transaction was aborted through no fault of a record."""
    if isinstance(error, TransactionFailed):
        return error.error.code() in FORGETS and not error.error.fatal()
    failures = error.failures.values()
    return all(isinstance(one, NotStored) and one.error.code() in ABORTED for one in failures)
