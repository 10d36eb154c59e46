"""The producers of delayed records: beside confluent_kafka.Producer, and for asyncio."""

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Any, Final, Generic, NamedTuple, Self, TypeVar, Unpack

from confluent_kafka import KafkaError, Producer

from kafka_delay.errors import (
    FORGETS,
    ClientError,
    NotStored,
    QueueFull,
    TransactionFailed,
)
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
"""Errors of records whose transaction was aborted, for any reason."""

SentT = TypeVar("SentT")

log = logging.getLogger("kafka_delay")


class BatchFailed(ClientError):
    """Some records of a batch are not stored.

    `receipts` has one place for each record that was tried, None if it failed. `failures` has the
    errors by index. Records behind the last place were not tried. A failed transaction leaves
    nothing visible, so every place is None.
    """

    def __init__(
        self, receipts: Sequence[Receipt | None], failures: Mapping[int, ClientError], what: str
    ) -> None:
        index, first = min(failures.items())
        super().__init__(f"{what}; record {index}: {first}")
        self.receipts = list(receipts)
        self.failures = dict(failures)


class _Producer(ABC, Generic[SentT]):
    """The requests of both producers. A call returns `SentT`."""

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
        datetime, epoch milliseconds, RFC 3339 text) and `level` (delay level, 1 the shortest).
        With an `id` the record replaces the pending one of that id, and can be cancelled by it.
        `headers` are a dict or pairs. `partition` is the target's; without it the key decides.

        The result is the Receipt once the broker has the record, or NotStored is raised.
        `on_delivery(error, message)` is called first, by the producer's own thread or by one that
        flushes. Raises RequestRefused, QueueFull after `max_block_s`, NotStored.
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
        """Send a whole new record in place of the pending one of that id, if there is one."""
        return self.send(topic, value, key, headers, on_delivery=on_delivery, id=id, **options)

    def cancel(
        self,
        id: str | bytes,  # noqa: A002 (the protocol's word)
        on_delivery: OnDelivery | None = None,
    ) -> SentT:
        """Ask that the pending record of that id is not delivered.

        The receipt says that the request is stored. The outcomes topic says under the receipt's
        origin whether it came in time: `applied` or `missed`.
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
        """Ask that the record of this receipt, or of its origin, is not delivered.

        Beside an origin give the record's `key` or `id`: the proxy demands proof that you know the
        record. A receipt has the key. The outcomes topic has the answer, as for `cancel`. A recall
        costs more than a `cancel`: give records an id if you take back many.
        """
        return self._sent(recall(receipt, self.ingress, key, id), on_delivery)

    @property
    def ingress(self) -> str:
        """The ingress topic."""
        return self._writer.ingress

    @abstractmethod
    def _sent(self, request: Request, on_delivery: OnDelivery | None) -> SentT: ...


class DelayProducer(_Producer[Future[Receipt]]):
    """Sends records that appear in their topics later; cancels and replaces them until then.

    `config` is confluent_kafka.Producer's. The defaults are acks=all, idempotence and Java's
    partitioner. Yours win, but another partitioner is refused: cancels must meet their records.
    `ingress` is the proxy's ingress topic. Each request returns a future that completes by itself.
    Threads may share a producer, processes may not. Close it, or use `with`: a program that ends
    without that loses queued records.
    """

    def send_batch(
        self, records: Iterable[DelayedRecord], *, transaction: bool = False
    ) -> list[Receipt]:
        """Send many records and wait for all receipts, in order. Memory is bounded.

        With `transaction` all records are one Kafka transaction, stored as a whole or not at all.
        This needs `transactional.id` in the settings; keep it within `transaction.timeout.ms`
        (60 s). A list is sent once more if its transaction was aborted though no record is at
        fault: a producer that was idle for long has lost its id. Raises BatchFailed, and the
        errors of `transaction`.
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
        """`with producer.transaction():` stores its records as a whole, or not at all.

        Records from other threads are part of it, and so are records of `producer`. Raises
        ConfigRefused without `transactional.id`, TransactionFailed when it was aborted,
        TransactionInDoubt, ProducerFenced.
        """
        return self._transactions.transaction()

    @property
    def producer(self) -> Producer:
        """The confluent_kafka.Producer underneath, for records without delay; do not poll it."""
        return self._writer.producer

    def flush(self, timeout_s: float | None = None) -> int:
        """Wait until the broker has everything. Return how many are left after `timeout_s`."""
        return self._writer.flush(timeout_s)

    def close(self, timeout_s: float = CLOSE_WITHIN_S) -> None:
        """Flush and end. Raises StillUnsent when records were not confirmed in time."""
        self._writer.close(timeout_s)

    def _sent(self, request: Request, on_delivery: OnDelivery | None) -> Future[Receipt]:
        return self._writer.write(request, on_delivery)

    def __len__(self) -> int:
        """Return how many records wait for the broker's confirmation."""
        return len(self._writer)

    def __bool__(self) -> bool:
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


class AsyncDelayProducer(_Producer[Coroutine[Any, Any, Receipt]]):
    """The same for asyncio: await each request, until the broker has it. No call blocks.

    Send many at once with `asyncio.gather`. Use DelayProducer for transactions. Close it, or use
    `async with`.
    """

    _may_block = False

    async def close(self, timeout_s: float = CLOSE_WITHIN_S) -> None:
        """Flush and end. Raises StillUnsent when records were not confirmed in time."""
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


class _InFlight(NamedTuple):
    number: int
    future: Future[Receipt]
    size_bytes: int


class Batch:
    """The records of one call. A bounded number waits for the broker at any time.

    With `is_all_or_nothing` the first failure ends the batch. Otherwise it goes on with the next
    record, unless no record gets through at all.
    """

    def __init__(self, writer: IngressWriter, *, is_all_or_nothing: bool) -> None:
        self._writer = writer
        self._is_all_or_nothing = is_all_or_nothing
        self._in_flight: deque[_InFlight] = deque()
        self._in_flight_bytes = 0
        self._receipts: list[Receipt | None] = []
        self._failures: dict[int, ClientError] = {}

    def write(self, records: Iterable[DelayedRecord]) -> list[Receipt]:
        """Write all records and wait for all receipts, in order. Raises BatchFailed."""
        for number, record in enumerate(records):
            self._receipts.append(None)
            try:
                self._write(number, record)
            except ClientError as error:
                self._failures[number] = error
            if self._must_stop():
                break
        while self._in_flight:
            self._await_oldest()
        if self._failures:
            raise self._failed()
        return [receipt for receipt in self._receipts if receipt is not None]

    def _write(self, number: int, record: DelayedRecord) -> None:
        request = request_of(record)
        size_bytes = request.size_bytes
        while self._in_flight and (
            len(self._in_flight) >= MOST_IN_FLIGHT
            or self._in_flight_bytes + size_bytes > MOST_IN_FLIGHT_BYTES
        ):
            self._await_oldest()
        self._in_flight.append(_InFlight(number, self._writer.write(request), size_bytes))
        self._in_flight_bytes += size_bytes

    def _await_oldest(self) -> None:
        number, future, size_bytes = self._in_flight.popleft()
        self._in_flight_bytes -= size_bytes
        try:
            self._receipts[number] = future.result()
        except ClientError as error:
            self._failures[number] = error

    def _must_stop(self) -> bool:
        return bool(self._failures) and (
            self._is_all_or_nothing or any(map(_ends_all, self._failures.values()))
        )

    def _failed(self) -> BatchFailed:
        tried = len(self._receipts)
        if self._is_all_or_nothing:
            return BatchFailed([None] * tried, self._failures, "the whole batch was taken back")
        what = f"{len(self._failures)} of {tried} records are not stored"
        return BatchFailed(self._receipts, self._failures, what)


def _ends_all(error: ClientError) -> bool:
    """Return whether the next record would fail too: a full queue, or a fatal error."""
    return isinstance(error, QueueFull) or (isinstance(error, NotStored) and error.error.fatal())


def _may_be_sent_again(error: BatchFailed | TransactionFailed) -> bool:
    """Return whether the broker aborted the transaction, and not because of a record."""
    if isinstance(error, TransactionFailed):
        return error.error.code() in FORGETS and not error.error.fatal()
    failures = error.failures.values()
    return all(isinstance(one, NotStored) and one.error.code() in ABORTED for one in failures)
