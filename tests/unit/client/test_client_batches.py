"""Batches: every record is accounted for, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any, cast
from unittest.mock import Mock, patch

import pytest
from confluent_kafka import KafkaError

from kafka_delay import BatchFailed, DelayedRecord, DelayProducer, NotStored, Receipt
from kafka_delay import producer as batches
from kafka_delay.errors import ProducerFenced, QueueFull, TransactionFailed, TransactionInDoubt
from kafka_delay.ingress_writer import IngressWriter
from kafka_delay.producer import Batch
from kafka_delay.request import Request
from tests.unit.client.mock_kafka import MockKafka


class Writer:
    """Writer whose records are stored when a receipt is requested."""

    def __init__(self, **fates: str) -> None:
        self.waiting = self.most_waiting = self.written = 0
        self._fates = fates

    def write(self, request: Request) -> Future[Receipt]:
        fate = self._fates.get((request.value or b"").decode())
        if fate == "full":
            raise QueueFull(KafkaError(KafkaError._QUEUE_FULL), "ingress")
        self.written += 1
        self.waiting += 1
        self.most_waiting = max(self.most_waiting, self.waiting)
        return _Later(self, self.written - 1, fate)


class _Later(Future[Receipt]):
    def __init__(self, writer: Writer, offset: int, fate: str | None) -> None:
        super().__init__()
        self._writer, self._offset, self._fate = writer, offset, fate

    def result(self, timeout: float | None = None) -> Receipt:
        self._writer.waiting -= 1
        if self._fate == "refused":
            raise NotStored(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), "ingress")
        return Receipt("ingress", 0, self._offset, 0)


def write(writer: Writer, records: Any, **options: bool) -> list[Receipt]:
    chosen = {"is_all_or_nothing": False, **options}
    return Batch(cast(IngressWriter, writer), **chosen).write(records)


def records(*values: str) -> list[DelayedRecord]:
    return [DelayedRecord("orders", value) for value in values]


def test_receipts_come_in_the_order_of_the_records() -> None:
    receipts = write(Writer(), records(*"abcde"))
    assert [receipt.offset for receipt in receipts] == [0, 1, 2, 3, 4]


def test_what_is_no_record_is_told_by_its_place() -> None:
    with pytest.raises(BatchFailed, match=r"record 1: \('orders', 'b'\) is no DelayedRecord"):
        write(Writer(), [*records("a"), ("orders", "b")])


def test_an_empty_batch_is_no_failure() -> None:
    assert write(Writer(), []) == []


def test_a_failure_leaves_the_others_stored_and_is_told_by_its_place() -> None:
    asked = [*records("a", "b"), DelayedRecord("orders", "c", delay="-1s"), *records("d")]
    with pytest.raises(BatchFailed, match="2 of 4 records are not stored; record 1:") as raised:
        write(Writer(b="refused"), asked)
    assert [receipt and receipt.offset for receipt in raised.value.receipts] == [0, None, None, 2]
    assert raised.value.failures.keys() == {1, 2}


def test_when_nothing_gets_through_the_rest_is_not_tried() -> None:
    left = iter(records(*"abcde"))
    with pytest.raises(BatchFailed) as raised:
        write(Writer(c="full"), left)
    assert raised.value.failures.keys() == {2}
    assert len(raised.value.receipts) == 3
    assert [record.value for record in left] == ["d", "e"]


def test_all_or_nothing_ends_with_the_first_failure() -> None:
    left = iter([*records("a"), DelayedRecord("orders", "b", level=-1), *records("c")])
    with pytest.raises(BatchFailed, match="none of the batch is stored") as raised:
        write(Writer(), left, is_all_or_nothing=True)
    assert raised.value.receipts == [None, None]
    assert len(list(left)) == 1


def _endless(count: int, size_bytes: int) -> Iterator[DelayedRecord]:
    return (DelayedRecord("orders", b"x" * size_bytes) for _ in range(count))


def test_no_more_than_so_many_records_wait_at_once() -> None:
    writer = Writer()
    assert len(write(writer, _endless(3 * batches.MOST_IN_FLIGHT, 1))) == 3 * batches.MOST_IN_FLIGHT
    assert writer.most_waiting == batches.MOST_IN_FLIGHT


def test_no_more_than_so_many_bytes_wait_at_once() -> None:
    writer, size_bytes = Writer(), 1024 * 1024
    write(writer, _endless(100, size_bytes))
    assert writer.most_waiting * size_bytes < batches.MOST_IN_FLIGHT_BYTES
    assert writer.most_waiting > 20


def test_a_batch_of_delays_of_their_own_lands_in_the_ingress(mock_kafka: MockKafka) -> None:
    ingress = mock_kafka.name()
    with DelayProducer(mock_kafka.settings, ingress=ingress) as producer:
        receipts = producer.send_batch(
            DelayedRecord("orders", str(number), str(number), delay=f"{number}ms")
            for number in range(50)
        )
    found = {
        (record.partition(), record.offset()): record for record in mock_kafka.records(ingress, 50)
    }
    for number, receipt in enumerate(receipts):
        record = found[receipt.partition, receipt.offset]
        assert ("timer-delay", b"%dms" % number) in (record.headers() or [])


def test_a_batch_in_one_transaction_can_be_followed_by_another(mock_kafka: MockKafka) -> None:
    ingress = mock_kafka.name()
    settings = {**mock_kafka.settings, "transactional.id": ingress}
    with DelayProducer(settings, ingress=ingress) as producer:
        assert len(producer.send_batch(records("a", "b"), transaction=True)) == 2
        refused = [*records("c"), DelayedRecord("orders", "d", delay="?")]
        with pytest.raises(BatchFailed, match="none of the batch"):
            producer.send_batch(refused, transaction=True)
        assert len(producer.send_batch(records("e"), transaction=True)) == 1


def aborted(code: int) -> BatchFailed:
    return BatchFailed([None], {0: NotStored(KafkaError(code), "ingress")}, "taken back")


FORGOTTEN = KafkaError(KafkaError.INVALID_PRODUCER_ID_MAPPING, "not assigned", False, False, True)


def batch_that_fails(mock_kafka: MockKafka, records: Any, *errors: Exception) -> Mock:
    tried = Mock(side_effect=[*errors, []])
    with (
        DelayProducer({**mock_kafka.settings, "transactional.id": mock_kafka.name()}) as producer,
        patch.object(DelayProducer, "_send_at_once", tried),
    ):
        producer.send_batch(records, transaction=True)
    return tried


@pytest.mark.parametrize(
    "error",
    [aborted(KafkaError._PURGE_QUEUE), TransactionFailed(FORGOTTEN, "not committed")],
    ids=["records", "commit"],
)
def test_a_list_whose_transaction_the_broker_has_aborted_is_sent_once_more(
    mock_kafka: MockKafka, error: Exception
) -> None:
    """The broker forgets an idle transactional.id. The second transaction registers it again."""
    assert batch_that_fails(mock_kafka, records("a"), error).call_count == 2
    with pytest.raises(type(error)):
        batch_that_fails(mock_kafka, records("a"), error, error)
    with pytest.raises(type(error)):
        batch_that_fails(mock_kafka, iter(records("a")), error)


@pytest.mark.parametrize(
    "error",
    [
        aborted(KafkaError.MSG_SIZE_TOO_LARGE),
        TransactionInDoubt(KafkaError(KafkaError._TIMED_OUT), "not committed"),
        ProducerFenced(KafkaError(KafkaError._FENCED), "not committed"),
    ],
    ids=["a record's fault", "in doubt", "fenced"],
)
def test_but_not_for_another_reason(mock_kafka: MockKafka, error: Exception) -> None:
    with pytest.raises(type(error)):
        batch_that_fails(mock_kafka, records("a"), error)


def test_a_forgotten_id_is_explained() -> None:
    said = str(TransactionFailed(FORGOTTEN, "not committed"))
    assert said.endswith("Try again: the next transaction registers it again")


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (TransactionFailed(KafkaError(KafkaError._TIMED_OUT), "no"), "Try the transaction again"),
        (
            TransactionInDoubt(KafkaError(KafkaError._TIMED_OUT), "no"),
            "asks for the result of this",
        ),
        (ProducerFenced(KafkaError(KafkaError._FENCED), "no"), "Open another producer"),
        (
            ProducerFenced(KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED), "no"),
            "Grant this user Write and Describe on the transactional.id",
        ),
    ],
)
def test_an_error_of_a_transaction_says_what_to_do(error: TransactionFailed, remedy: str) -> None:
    assert remedy in str(error)
