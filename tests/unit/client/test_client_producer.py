"""The producer on librdkafka's mock brokers: futures complete by themselves, limits hold."""

from __future__ import annotations

import gc
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message

from kafka_delay import (
    ClientError,
    ConfigRefused,
    DelayedRecord,
    DelayProducer,
    NotStored,
    QueueFull,
    RequestRefused,
    StillUnsent,
    ingress_writer,
)
from tests.unit.client.mock_kafka import MockKafka

WITHIN_S = 180
NOBODY = {"bootstrap.servers": "127.0.0.1:9", "log_level": 0}


def test_a_refused_login_or_tls_is_named_by_each_error_of_waiting() -> None:
    producer = DelayProducer({**NOBODY, "message.timeout.ms": 1_500})
    sent = producer.send("orders", "v", delay="1h")
    producer._writer._login_errors(KafkaError(KafkaError._SSL, "SSL handshake failed"))
    names = "SSL handshake failed.*Check security.protocol"
    with pytest.raises(TimeoutError, match=names):
        sent.result(0)
    with pytest.raises(TimeoutError, match=names):
        sent.exception(0)
    with pytest.raises(NotStored, match=names):
        sent.result(WITHIN_S)
    producer.send("orders", "v", delay="1h")
    with pytest.raises(StillUnsent, match=f"1 record was not confirmed.*{names}"):
        producer.close(0)


def test_the_login_error_is_forgotten_once_a_record_is_stored(
    mock_kafka: MockKafka, ingress: str
) -> None:
    heard = list[KafkaError]()
    settings = {**mock_kafka.settings, "error_cb": heard.append}
    with DelayProducer(settings, ingress=ingress) as producer:
        login = producer._writer._login_errors
        for code in (KafkaError._ALL_BROKERS_DOWN, KafkaError._AUTHENTICATION):
            login(KafkaError(code, "said"))
        assert login.last == (
            "The last error was: said. Check sasl.username, sasl.password and sasl.mechanism"
        )
        producer.send("orders", "v").result(WITHIN_S)
        forgotten: str | None = producer._writer._login_errors.last
        assert forgotten is None
    assert len(heard) == 2


@pytest.fixture
def ingress(mock_kafka: MockKafka) -> str:
    return mock_kafka.name()


def test_a_future_completes_although_nobody_polls(mock_kafka: MockKafka, ingress: str) -> None:
    with DelayProducer(mock_kafka.settings, ingress=ingress) as producer:
        receipt = producer.send("orders", "v", "k", delay="30s").result(WITHIN_S)
    (record,) = mock_kafka.records(ingress, 1)
    assert receipt.origin == f"{ingress}/{record.partition()}/{record.offset()}"
    assert record.headers() == [("timer-topic", b"orders"), ("timer-delay", b"30s")]
    assert (record.key(), record.value()) == (b"k", b"v")


def test_records_and_cancels_of_one_id_share_a_partition(
    mock_kafka: MockKafka, ingress: str
) -> None:
    with DelayProducer(mock_kafka.settings, ingress=ingress) as producer:
        for number in range(20):
            ident = f"order-{number}"
            sent = producer.send("orders", "v", f"key-{number}", delay="1h", id=ident)
            again = producer.replace(ident, "orders", "w", None, delay="2h")
            cancelled = producer.cancel(ident)
            places = {future.result(WITHIN_S).partition for future in (sent, again, cancelled)}
            assert len(places) == 1


def test_a_callback_is_called_as_confluent_kafka_would_before_the_future_is_done(
    mock_kafka: MockKafka, ingress: str
) -> None:
    seen: list[tuple[KafkaError | None, int | None, bool]] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        seen.append((error, message.offset(), future.done()))

    with DelayProducer({**mock_kafka.settings, "linger.ms": 50}, ingress=ingress) as producer:
        future = producer.send("orders", "v", on_delivery=on_delivery)
        receipt = future.result(WITHIN_S)
    assert seen == [(None, receipt.offset, False)]


def test_a_callback_for_all_records_is_called_where_none_is_given(
    mock_kafka: MockKafka, ingress: str
) -> None:
    seen: list[object] = []
    settings = {**mock_kafka.settings, "on_delivery": lambda *report: seen.append(report)}
    with DelayProducer(settings, ingress=ingress) as producer:
        producer.send("orders", "v").result(WITHIN_S)
        producer.send("orders", "v", on_delivery=lambda *_: None).result(WITHIN_S)
    assert len(seen) == 1


def test_a_callback_that_raises_spoils_neither_its_future_nor_the_next(
    mock_kafka: MockKafka, ingress: str, caplog: pytest.LogCaptureFixture
) -> None:
    def on_delivery(*_: object) -> None:
        raise ValueError("the caller's own mistake")

    with DelayProducer(mock_kafka.settings, ingress=ingress) as producer:
        producer.send("orders", "v", on_delivery=on_delivery).result(WITHIN_S)
        producer.send("orders", "v").result(WITHIN_S)
    assert "a delivery callback raised" in caplog.text


def test_a_callback_may_send_but_not_wait(mock_kafka: MockKafka, ingress: str) -> None:
    told: list[str] = []
    chained: list[Any] = []
    done = threading.Event()

    def on_delivery(*_: object) -> None:
        chained.append(producer.cancel("x"))
        for call in (producer.flush, producer.close):
            try:
                call()
            except ClientError as error:
                told.append(str(error))
        done.set()

    with DelayProducer(mock_kafka.settings, ingress=ingress) as producer:
        producer.send("orders", "v", id="x", on_delivery=on_delivery)
        assert done.wait(WITHIN_S)
        assert chained[0].result(WITHIN_S).topic == ingress
    assert len(told) == 2
    assert all("would wait for itself" in sentence for sentence in told)


def test_a_callback_that_a_flush_calls_may_not_flush_itself(
    mock_kafka: MockKafka, ingress: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would end the whole process. Here only the flush itself calls it."""
    monkeypatch.setattr(ingress_writer._Reports, "_poll", lambda _: None)
    told: list[ClientError] = []

    def on_delivery(*_: object) -> None:
        try:
            producer.flush()
        except ClientError as error:
            told.append(error)

    with DelayProducer(mock_kafka.settings, ingress=ingress) as producer:
        for _ in range(20):
            producer.send("orders", "v", on_delivery=on_delivery)
        assert producer.flush(WITHIN_S) == 0
    assert len(told) == 20


def test_many_threads_may_share_a_producer(mock_kafka: MockKafka, ingress: str) -> None:
    with (
        DelayProducer(mock_kafka.settings, ingress=ingress) as producer,
        ThreadPoolExecutor(8) as threads,
    ):
        sends = [threads.submit(producer.send, "orders", str(n), str(n)) for n in range(400)]
        receipts = [sent.result(WITHIN_S).result(WITHIN_S) for sent in sends]
    assert len({receipt.origin for receipt in receipts}) == 400


def test_what_cannot_be_asked_for_is_refused_before_anything_is_sent() -> None:
    with DelayProducer(NOBODY) as producer:
        with pytest.raises(RequestRefused):
            producer.send("orders", "v", delay="soon")
        with pytest.raises(RequestRefused):
            producer.cancel("")
        assert len(producer) == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"config": None}, "the settings are a NoneType: give a dict"),
        ({"config": "localhost:9092"}, "the settings are a str: give a dict"),
        ({"ingress": ""}, "ingress is '', which names no topic"),
        ({"max_block_s": "5"}, "max_block_s is '5'"),
        ({"max_block_s": -1}, "max_block_s is -1"),
        ({"max_block_s": float("nan")}, "max_block_s is nan"),
    ],
)
def test_a_producer_that_could_not_send_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigRefused, match=said):
        DelayProducer(**{"config": {"bootstrap.servers": "localhost:9"}, **change})


def test_a_full_queue_is_waited_for_no_longer_than_allowed() -> None:
    settings = {**NOBODY, "queue.buffering.max.messages": 1}
    producer = DelayProducer(settings, max_block_s=0.05)
    producer.send("orders", "v")
    with pytest.raises(QueueFull):
        producer.send("orders", "v")
    with pytest.raises(StillUnsent):
        producer.close(0)


def test_a_queue_that_empties_takes_the_waiting_record(mock_kafka: MockKafka, ingress: str) -> None:
    settings = {**mock_kafka.settings, "queue.buffering.max.messages": 1}
    with DelayProducer(settings, ingress=ingress) as producer:
        sent = [producer.send("orders", str(number)) for number in range(20)]
        assert not wait(sent, WITHIN_S).not_done


def test_a_record_that_nobody_takes_fails_its_future_with_what_to_look_at() -> None:
    with DelayProducer({**NOBODY, "message.timeout.ms": 50}) as producer:
        future = producer.send("orders", "v")
        with pytest.raises(NotStored, match="brokers in bootstrap.servers can be reached"):
            future.result(WITHIN_S)


def test_a_record_too_large_for_this_producer_is_refused_at_once() -> None:
    with DelayProducer({**NOBODY, "message.max.bytes": 2_000}) as producer:
        with pytest.raises(NotStored, match=r"message\.max\.bytes") as raised:
            producer.send("orders", b"x" * 3_000)
        assert raised.value.error.code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_closing_gives_up_what_was_not_confirmed_and_says_how_much() -> None:
    producer = DelayProducer(NOBODY)
    futures = [producer.send("orders", "v") for _ in range(3)]
    with pytest.raises(StillUnsent, match="3 records were not confirmed"):
        producer.close(0)
    assert all(isinstance(future.exception(WITHIN_S), NotStored) for future in futures)
    producer.close()


def test_closing_ends_the_thread_that_was_opened(mock_kafka: MockKafka, ingress: str) -> None:
    before = set(threading.enumerate())
    with DelayProducer(mock_kafka.settings, ingress=ingress):
        (thread,) = set(threading.enumerate()) - before
        assert thread.is_alive()
    assert not thread.is_alive()


def test_a_closed_producer_takes_nothing_more(mock_kafka: MockKafka, ingress: str) -> None:
    with DelayProducer(mock_kafka.settings, ingress=ingress) as producer:
        producer.send("orders", "v")
    assert len(mock_kafka.records(ingress, 1)) == 1
    with pytest.raises(ClientError, match="closed"):
        producer.send("orders", "v")


def test_a_forgotten_producer_ends_its_thread_and_says_what_was_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = set(threading.enumerate())
    producer = DelayProducer(NOBODY)
    producer.send("orders", "v")
    (thread,) = set(threading.enumerate()) - before
    del producer
    gc.collect()
    assert not thread.is_alive()
    assert "1 records were never confirmed" in caplog.text


def test_a_future_cannot_be_cancelled_since_the_record_is_on_its_way() -> None:
    producer = DelayProducer(NOBODY)
    assert not producer.send("orders", "v").cancel()
    with pytest.raises(StillUnsent):
        producer.close(0)


def test_a_transaction_without_its_id_is_refused_with_the_setting_to_add() -> None:
    with DelayProducer(NOBODY) as producer:
        with pytest.raises(ConfigRefused, match=r"'transactional\.id'"), producer.transaction():
            pass
        with pytest.raises(ConfigRefused, match=r"'transactional\.id'"):
            producer.send_batch([DelayedRecord("orders")], transaction=True)


def test_a_transactional_producer_sends_within_transactions_only() -> None:
    with (
        DelayProducer({**NOBODY, "transactional.id": "t"}) as producer,
        pytest.raises(NotStored, match=r"with producer\.transaction\(\)"),
    ):
        producer.send("orders", "v")


def test_an_empty_producer_is_still_true() -> None:
    with DelayProducer(NOBODY) as producer:
        assert producer
        assert len(producer) == 0
