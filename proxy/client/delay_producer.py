"""The producer of delayed records: a drop-in beside confluent_kafka.Producer."""

import logging
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Final, Self

from confluent_kafka import KafkaError, Producer

from proxy.client.batch import Batch
from proxy.client.errors import FORGETS, BatchFailed, NotStored, TransactionFailed
from proxy.client.ingress_writer import IngressWriter, OnDelivery
from proxy.client.kafka_settings import Settings
from proxy.client.receipt import Receipt
from proxy.client.request import Data, DelayedRecord, Headers, cancellation, delayed, recall
from proxy.client.transactions import Transactions
from proxy.client.when import Delay, Instant

INGRESS: Final = "timer.ingress"
MAX_BLOCK_S: Final = 60.0
CLOSE_WITHIN_S: Final = 30.0
TRANSACTION_STEP_WITHIN_S: Final = 60.0
ABORTED: Final = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})  # noqa: SLF001
"""Errors of records whose transaction was aborted, whatever for."""

log = logging.getLogger("proxy.client")


class DelayProducer:
    """Sends records that appear in their topics later; cancels and replaces them until then.

    `config` is what confluent_kafka.Producer takes. Defaults are acks=all, idempotence and Java's
    partitioner; yours win, except for another partitioner: cancels have to meet their records.
    `ingress` is the proxy's ingress topic. Threads may share one producer, processes may not.
    Close it, or use `with`; what is still queued when a program ends is lost.
    """

    def __init__(
        self, config: Settings, *, ingress: str = INGRESS, max_block_s: float = MAX_BLOCK_S
    ) -> None:
        self._writer = IngressWriter(config, ingress, max_block_s)
        self._transactions = Transactions(self._writer, TRANSACTION_STEP_WITHIN_S)

    def send(
        self,
        topic: str,
        value: Data = None,
        key: Data = None,
        headers: Headers | None = None,
        delay: Delay | None = None,
        deliver_at: Instant | None = None,
        level: int | None = None,
        id: str | bytes | None = None,  # noqa: A002 (the protocol's word)
        partition: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Future[Receipt]:
        """Send one record that appears in `topic` later; without a time, at once.

        At most one of: `delay` (timedelta, or text such as `30s`), `deliver_at` (aware datetime,
        epoch milliseconds, RFC 3339 text), `level` (delay level, 1 the shortest).
        With an `id` it replaces the pending record of that id, and can be cancelled by it.
        `partition` is the target's; without, the key decides as in Java.

        The future has the Receipt once the broker has the record, or fails with NotStored; it
        completes by itself. `on_delivery(error, message)` is called first, by the producer's own
        thread or by one that flushes. Raises RequestRefused, QueueFull after `max_block_s`,
        NotStored.
        """
        record = DelayedRecord(topic, value, key, headers, delay, deliver_at, level, id, partition)
        return self._writer.write(delayed(record), on_delivery)

    def replace(
        self,
        id: str | bytes,  # noqa: A002 (the protocol's word)
        topic: str,
        value: Data = None,
        key: Data = None,
        headers: Headers | None = None,
        delay: Delay | None = None,
        deliver_at: Instant | None = None,
        level: int | None = None,
        partition: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Future[Receipt]:
        """Send a record in place of the pending one of that id: a whole new record, time and all.

        The same as `send` with the id; if nothing is pending, it is simply sent.
        """
        return self.send(
            topic, value, key, headers, delay, deliver_at, level, id, partition, on_delivery
        )

    def cancel(
        self,
        id: str | bytes,  # noqa: A002 (the protocol's word)
        on_delivery: OnDelivery | None = None,
    ) -> Future[Receipt]:
        """Ask that the pending record of that id is not delivered.

        The receipt says that the request is stored. Whether it came in time is said by the
        outcomes topic, under the receipt's origin: `applied` or `missed`.
        """
        return self._writer.write(cancellation(id), on_delivery)

    def recall(
        self,
        receipt: Receipt | str,
        on_delivery: OnDelivery | None = None,
        *,
        key: Data = None,
        id: str | bytes | None = None,  # noqa: A002 (the protocol's word)
    ) -> Future[Receipt]:
        """Ask that the record of this receipt is not delivered; an `id` is not needed.

        `receipt`: what the future of `send` had, or its origin. With an origin give the record's
        `key` or its `id`: the proxy takes back only what the request proves to know. A receipt has
        the key. Whether the request came in time is said by the outcomes topic, as for `cancel`. It
        costs more than a `cancel`: where many records are to be taken back, give them ids.
        """
        return self._writer.write(recall(receipt, self.ingress, key, id), on_delivery)

    def send_batch(
        self, records: Iterable[DelayedRecord], *, transaction: bool = False
    ) -> list[Receipt]:
        """Send many records, each with a time of its own, and wait for all receipts, in order.

        Memory is bounded: a generator may be endless but for the receipts. With `transaction` all
        of it is one Kafka transaction: needs `transactional.id` in the settings, and everything is
        stored or nothing; keep it within `transaction.timeout.ms` (60 s). A list whose transaction
        was aborted, though no record is at fault, is sent once more: a producer that was idle for
        long has lost its transactional.id. Raises BatchFailed, which tells of every record, and
        what `transaction` raises.
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
        """`with producer.transaction():` what is sent within is stored as a whole, or not at all.

        Sends of other threads meanwhile are part of it. Also what `producer` produces directly.
        Raises ConfigRefused without `transactional.id`; TransactionFailed when it was aborted;
        TransactionInDoubt; ProducerFenced.
        """
        return self._transactions.transaction()

    @property
    def producer(self) -> Producer:
        """The confluent_kafka.Producer underneath, for records without delay; do not poll it."""
        return self._writer.producer

    @property
    def ingress(self) -> str:
        """The ingress topic."""
        return self._writer.ingress

    def flush(self, timeout_s: float | None = None) -> int:
        """Wait until the broker has everything, or `timeout_s`; how many it does not have yet."""
        return self._writer.flush(timeout_s)

    def close(self, timeout_s: float = CLOSE_WITHIN_S) -> None:
        """Flush and end. Raises StillUnsent when records were not confirmed in time."""
        self._writer.close(timeout_s)

    def __len__(self) -> int:
        """How many records wait for the broker's confirmation."""
        return len(self._writer)

    def __bool__(self) -> bool:
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def _may_be_sent_again(error: BatchFailed | TransactionFailed) -> bool:
    """Whether the broker aborted the transaction, and not for one of its records."""
    if isinstance(error, TransactionFailed):
        return error.error.code() in FORGETS and not error.error.fatal()
    failures = error.failures.values()
    return all(isinstance(one, NotStored) and one.error.code() in ABORTED for one in failures)
