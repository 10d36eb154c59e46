"""Ingress records of the Python client on a real broker, and their partitions."""

from __future__ import annotations

import time
import uuid

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from kafka_delay import (
    BatchFailed,
    DelayedRecord,
    DelayProducer,
    NotStored,
    ProducerFenced,
    TransactionFailed,
)
from tests.conftest import StartBroker
from tests.support.records import Incoming, new_topic, read_to_end
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.core]

WITHIN_S = 180
BROKER_STAMPED = {"message.timestamp.type": "LogAppendTime"}


@pytest.fixture
def ingress(kafka: str) -> str:
    return new_topic(kafka, "ingress", 4, BROKER_STAMPED)


@pytest.fixture
def settings(kafka: str) -> dict[str, str]:
    return {"bootstrap.servers": kafka}


@pytest.fixture
def transactional(settings: dict[str, str]) -> dict[str, str]:
    return {**settings, "transactional.id": f"client-{uuid.uuid4().hex[:8]}"}


def test_a_receipt_names_the_record_and_the_broker_s_timestamp(
    kafka: str, settings: dict[str, str], ingress: str
) -> None:
    with DelayProducer(settings, ingress=ingress) as producer:
        before_ms = time.time_ns() // 1_000_000
        receipt = producer.send("orders", "v", "k", {"a": None}, delay="30s", id="x").result(
            WITHIN_S
        )
    (record,) = read_to_end(kafka, ingress, 1)
    assert receipt.origin == f"{ingress}/{record.partition}/{record.offset}"
    assert receipt.timestamp_ms == record.timestamp_ms >= before_ms
    assert (record.key, record.value) == (b"x", b"v")
    assert record.headers == [
        ("timer-topic", b"orders"),
        ("timer-delay", b"30s"),
        ("timer-id", b"x"),
        ("timer-key", b"k"),
        ("a", None),
    ]


def test_null_key_and_null_header_values_arrive_as_null(
    kafka: str, settings: dict[str, str], ingress: str
) -> None:
    with DelayProducer(settings, ingress=ingress) as producer:
        producer.send("orders", None, None, [("a", None), ("b", "")], id="x")
        producer.send("orders", "", "")
        producer.cancel("x")
    records = {record.value: record for record in read_to_end(kafka, ingress, 3)}
    assert len(records) == 2, "the cancel's value is null, as the record's"
    assert records[b""].key == b""
    nulls = [r for r in read_to_end(kafka, ingress, 3) if r.header("timer-id") == b"x"]
    assert [record.headers[1:] for record in nulls] == [
        [("timer-id", b"x"), ("timer-key", None), ("a", None), ("b", b"")]
    ]


def test_keys_and_ids_go_where_java_producers_would_send_them(
    settings: dict[str, str], ingress: str
) -> None:
    words = ["", "a", "ab", "abc", "abcd", "order-4711", "schlüssel", "x" * 256]
    with DelayProducer(settings, ingress=ingress) as producer:
        keyed = {word: producer.send("t", "v", word).result(WITHIN_S) for word in words}
        named = {word: producer.cancel(word).result(WITHIN_S) for word in words[1:6]}
    for word, receipt in [*keyed.items(), *named.items()]:
        assert receipt.partition == (_murmur2(word.encode()) & 0x7FFFFFFF) % 4


def _murmur2(key: bytes) -> int:
    """Return Kafka's partitioner hash (org.apache.kafka.common.utils.Utils.murmur2)."""
    factor, mask = 0x5BD1E995, 0xFFFFFFFF
    mixed = 0x9747B28C ^ len(key)
    whole = len(key) - len(key) % 4
    for start in range(0, whole, 4):
        word = int.from_bytes(key[start : start + 4], "little") * factor & mask
        mixed = (mixed * factor & mask) ^ ((word ^ word >> 24) * factor & mask)
    if whole < len(key):
        mixed = (mixed ^ int.from_bytes(key[whole:], "little")) * factor & mask
    mixed = (mixed ^ mixed >> 13) * factor & mask
    return mixed ^ mixed >> 15


def test_a_batch_in_one_transaction_appears_whole_or_not_at_all(
    kafka: str, transactional: dict[str, str], ingress: str
) -> None:
    good = [DelayedRecord("orders", f"good-{n}", str(n), delay=f"{n}ms") for n in range(100)]
    bad = [DelayedRecord("orders", "bad", str(n)) for n in range(10)]
    with DelayProducer(transactional, ingress=ingress) as producer:
        with pytest.raises(BatchFailed) as raised:
            producer.send_batch([*bad, DelayedRecord("orders", delay="?")], transaction=True)
        receipts = producer.send_batch(good, transaction=True)
    assert raised.value.receipts == [None] * 11
    records = read_to_end(kafka, ingress, 100)
    assert {record.value for record in records} == {record.value.encode() for record in good}  # type: ignore[union-attr]
    assert {r.origin for r in receipts} == {f"{ingress}/{r.partition}/{r.offset}" for r in records}


def test_a_transaction_holds_sends_cancels_and_the_producer_s_own_records(
    kafka: str, transactional: dict[str, str], ingress: str
) -> None:
    audit = new_topic(kafka, "audit")
    with DelayProducer(transactional, ingress=ingress) as producer:
        with producer.transaction():
            producer.cancel("old")
            producer.send("orders", "new", id="new", delay="1h")
            producer.producer.produce(audit, b"moved")
        with pytest.raises(ZeroDivisionError):
            _break_off(producer, audit)
    assert {r.value for r in read_to_end(kafka, ingress, 2)} == {None, b"new"}
    assert [r.value for r in read_to_end(kafka, audit, 1)] == [b"moved"]


def _break_off(producer: DelayProducer, audit: str) -> None:
    with producer.transaction():
        producer.send("orders", "never")
        producer.producer.produce(audit, b"never")
        raise ZeroDivisionError


def test_a_record_the_broker_refuses_aborts_its_transaction_and_a_later_one_goes_through(
    kafka: str, transactional: dict[str, str]
) -> None:
    """librdkafka may also abort the next transaction, because a sequence number was skipped."""
    narrow = new_topic(kafka, "narrow", 1, {"max.message.bytes": "1000"})
    with DelayProducer(transactional, ingress=narrow) as producer:
        with pytest.raises(TransactionFailed), producer.transaction():
            producer.send("orders", b"x" * 5_000)
        wait_for(lambda: _goes_through(producer), WITHIN_S, "a transaction to go through")
    assert [r.value for r in read_to_end(kafka, narrow, 1)] == [b"small"]


def _goes_through(producer: DelayProducer) -> bool:
    try:
        producer.send_batch([DelayedRecord("orders", "small")], transaction=True)
    except (BatchFailed, TransactionFailed):
        return False
    return True


def test_part_of_a_batch_that_the_broker_refuses_is_named(
    kafka: str, settings: dict[str, str]
) -> None:
    narrow = new_topic(kafka, "narrow", 1, {"max.message.bytes": "1000"})
    sizes_bytes = [10, 5_000, 20]
    batch = [DelayedRecord("orders", b"x" * size_bytes) for size_bytes in sizes_bytes]
    with (
        DelayProducer({**settings, "batch.num.messages": "1"}, ingress=narrow) as producer,
        pytest.raises(BatchFailed, match="1 of 3 records are not stored; record 1:") as raised,
    ):
        producer.send_batch(batch)
    failure = raised.value.failures[1]
    assert isinstance(failure, NotStored)
    assert failure.error.code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert [len(r.value or b"") for r in read_to_end(kafka, narrow, 2)] == [10, 20]


def test_a_producer_that_another_has_replaced_says_so(
    transactional: dict[str, str], ingress: str
) -> None:
    record = [DelayedRecord("orders", "v")]
    with DelayProducer(transactional, ingress=ingress) as first:
        first.send_batch(record, transaction=True)
        with DelayProducer(transactional, ingress=ingress) as second:
            second.send_batch(record, transaction=True)
        with pytest.raises((ProducerFenced, BatchFailed)):
            first.send_batch(record, transaction=True)
        with pytest.raises(ProducerFenced, match="cannot go on"):
            first.send_batch(record, transaction=True)


def test_a_batch_after_a_rest_that_the_broker_forgot_goes_through(own_broker: StartBroker) -> None:
    """The broker forgets idle transactional ids, by default after seven days."""
    broker = own_broker(
        overrides={
            "transactional.id.expiration.ms": "2000",
            "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
        }
    )
    bootstrap = broker.bootstrap_servers
    ingress, settings = new_topic(bootstrap, "ingress", 1), {"bootstrap.servers": bootstrap}
    with DelayProducer({**settings, "transactional.id": "ours"}, ingress=ingress) as producer:
        producer.send_batch([DelayedRecord("orders", b"before")], transaction=True)
        others = [Producer({**settings, "transactional.id": f"plain-{n}"}) for n in range(9)]
        for other in others:
            other.init_transactions(WITHIN_S)
        assert any(_is_forgotten(other, new_topic(bootstrap)) for other in others)
        producer.send_batch([DelayedRecord("orders", b"after")], transaction=True)
    assert [record.value for record in read_to_end(bootstrap, ingress)] == [b"before", b"after"]


def _is_forgotten(plain: Producer, topic: str) -> bool:
    time.sleep(4)
    plain.begin_transaction()
    plain.produce(topic, b"any")
    try:
        plain.commit_transaction(WITHIN_S)
    except KafkaException:
        return True
    return False


def test_an_ingress_that_does_not_exist_is_named_with_what_to_do(
    kafka: str, settings: dict[str, str]
) -> None:
    """The broker must not create it: its metrics could not tell it from another topic."""
    quick = {**settings, "topic.metadata.propagation.max.ms": "100", "message.timeout.ms": "5000"}
    missing = new_topic(kafka, "missing_ingress").replace("_", ".")
    with DelayProducer(quick, ingress=missing) as producer:
        future = producer.send("orders", "v")
        with pytest.raises(NotStored) as raised:
            future.result(WITHIN_S)
    assert missing in str(raised.value)


def test_it_goes_beside_a_plain_producer_and_consumer(
    kafka: str, settings: dict[str, str], ingress: str
) -> None:
    headers: list[tuple[str, str | bytes | None]] = [
        ("timer-topic", "orders"),
        ("timer-delay", "10s"),
    ]
    plain = Producer({**settings, "partitioner": "murmur2_random"})
    plain.produce(ingress, key="k1", value="hello", headers=headers)
    plain.flush(WITHIN_S)
    with DelayProducer(settings, ingress=ingress) as producer:
        producer.send("orders", "hello", "k1", delay="10s")
    first, second = read_to_end(kafka, ingress, 2)
    assert _content(first) == _content(second)


def _content(record: Incoming) -> tuple[object, ...]:
    return record.partition, record.key, record.value, record.headers
