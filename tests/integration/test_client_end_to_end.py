"""The Python client with the proxy: each request is fulfilled."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kafka_delay import (
    DeadLetter,
    DelayedRecord,
    DelayProducer,
    HalfMessage,
    Received,
    RetryConsumer,
    RetryLater,
    State,
    TransactionalDelayProducer,
)
from tests.support.installation.installation import Installation
from tests.support.records import Incoming, read_to_end
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.core]

WITHIN_S = 180
QUICK: dict[str, Any] = {
    "levels": "100ms 200ms 300ms 400ms",
    "transactions": {"immunity": "1s", "check_interval": "1s", "max_checks": 15},
}


@pytest.fixture
def target(installation: Installation) -> str:
    installation.proxy(**QUICK).start_ready()
    return installation.target()


@pytest.fixture
def producer(installation: Installation) -> Iterator[DelayProducer]:
    settings = {"bootstrap.servers": installation.bootstrap}
    with DelayProducer(settings, ingress=installation.ingress) as made:
        yield made


def arrived(installation: Installation, topic: str, at_least: int) -> dict[bytes | None, Incoming]:
    return {r.value: r for r in read_to_end(installation.bootstrap, topic, at_least)}


def test_every_way_to_say_when_is_kept_to_the_millisecond(
    installation: Installation, target: str, producer: DelayProducer
) -> None:
    moment = datetime.now(UTC) + timedelta(seconds=2)
    receipts = {
        b"delta": producer.send(target, "delta", delay=timedelta(milliseconds=700)),
        b"text": producer.send(target, "text", delay="1s"),
        b"level": producer.send(target, "level", level=2),
        b"moment": producer.send(target, "moment", deliver_at=moment),
    }
    found = arrived(installation, target, 4)
    for value, delay_ms in ((b"delta", 700), (b"text", 1000), (b"level", 200)):
        due_ms = receipts[value].result().timestamp_ms + delay_ms
        assert found[value].header("timer-due") == b"%d" % due_ms
        assert found[value].timestamp_ms >= due_ms
    assert found[b"moment"].timestamp_ms >= int(moment.timestamp() * 1000)
    origins = {value: future.result().origin.encode() for value, future in receipts.items()}
    assert {value: r.header("timer-origin") for value, r in found.items()} == origins


def test_what_was_cancelled_never_arrives_and_what_was_replaced_arrives_once(
    installation: Installation, target: str, producer: DelayProducer
) -> None:
    for ident in ("cancelled", "replaced", "kept"):
        producer.send(target, ident, "k", {"trace": "7"}, delay="10s", id=ident)
    producer.cancel("cancelled")
    producer.replace("replaced", target, "another", None, delay="3s")
    producer.send(target, "the end", delay="12s")
    found = arrived(installation, target, 3)
    assert found.keys() == {b"kept", b"another", b"the end"}
    assert (found[b"kept"].key, found[b"another"].key) == (b"k", None)
    names = [name for name, _ in found[b"kept"].headers]
    assert names == ["trace", "timer-origin", "timer-due"]


def test_a_batch_taken_back_never_arrives(installation: Installation, target: str) -> None:
    settings = {"bootstrap.servers": installation.bootstrap, "transactional.id": target}
    with DelayProducer(settings, ingress=installation.ingress) as producer:
        good = [DelayedRecord(target, f"good {n}", delay=f"{n * 10}ms") for n in range(50)]
        with pytest.raises(ZeroDivisionError):
            _taken_back(producer, target)
        producer.send_batch(good, transaction=True)
    assert len(arrived(installation, target, 50)) == 50


def _taken_back(producer: DelayProducer, target: str) -> None:
    with producer.transaction():
        producer.send(target, "never")
        raise ZeroDivisionError


def consuming(installation: Installation, topic: str, handler: Any) -> RetryConsumer:
    config = {"bootstrap.servers": installation.bootstrap}
    group = installation.name
    return RetryConsumer(config, group, [topic], handler, ingress=installation.ingress)


def test_a_failing_record_is_retried_level_by_level_and_ends_in_the_dead_letters(
    installation: Installation, target: str, producer: DelayProducer
) -> None:
    attempts: list[int] = []

    def handler(record: Received) -> None:
        attempts.append(record.attempt)
        assert (record.topic, record.key, record.value) == (target, b"k", b"v")
        raise ValueError("never")

    consumer = consuming(installation, target, handler)
    thread = threading.Thread(target=consumer.run)
    thread.start()
    try:
        producer.send(target, "v", "k")
        wait_for(lambda: len(attempts) == 17, WITHIN_S, "all attempts")
        (letter,) = arrived(installation, f"dlq.{installation.name}", 1).values()
    finally:
        consumer.stop()
        thread.join(WITHIN_S)
    assert attempts == list(range(17))
    assert letter.header("retry-original-topic") == target.encode()
    assert letter.header("retry-exception") == b"ValueError: never"


def test_a_handler_chooses_when_its_record_comes_again(
    installation: Installation, target: str, producer: DelayProducer
) -> None:
    attempts: list[int] = []

    def handler(record: Received) -> None:
        attempts.append(record.attempt)
        if record.attempt:
            consumer.stop()
        else:
            raise RetryLater(timedelta(milliseconds=1_700), "the bank is closed")

    consumer = consuming(installation, target, handler)
    producer.send(target, "v", "k")
    consumer.run()
    assert attempts == [0, 1]
    (again,) = read_to_end(installation.bootstrap, f"retry.{installation.name}", 1)
    requests = read_to_end(installation.bootstrap, installation.ingress, 2)
    (asked_ms,) = [r.timestamp_ms for r in requests if r.header("timer-retry-group")]
    assert int(again.header("timer-due") or b"") == asked_ms + 1_700
    assert again.header("retry-exception") == b"the bank is closed"


def test_a_dead_letter_skips_the_levels(
    installation: Installation, target: str, producer: DelayProducer
) -> None:
    def handler(record: Received) -> None:
        consumer.stop()
        raise DeadLetter("no such customer")

    consumer = consuming(installation, target, handler)
    producer.send(target, "v", "k")
    consumer.run()
    (letter,) = arrived(installation, f"dlq.{installation.name}", 1).values()
    assert letter.header("retry-exception") == b"no such customer"


def returning(state: State) -> Callable[[HalfMessage], State]:
    return lambda _: state


class Listener:
    def __init__(self, *committed: bytes) -> None:
        self._committed = committed
        self.asked: list[bytes | None] = []

    def check(self, half: HalfMessage) -> State:
        self.asked.append(half.value)
        return State.COMMIT if half.value in self._committed else State.ROLLBACK


def test_half_messages_arrive_only_if_their_transaction_succeeded(
    installation: Installation, target: str
) -> None:
    listener = Listener(b"lost, then committed")
    sends: list[tuple[str, State, dict[str, Any]]] = [
        ("committed", State.COMMIT, {"key": "k", "headers": {"trace": "7"}}),
        ("committed, later", State.COMMIT, {"delay": "3s"}),
        ("rolled back", State.ROLLBACK, {}),
        ("lost, then committed", State.UNKNOWN, {"immunity": "500ms"}),
        ("lost, then rolled back", State.UNKNOWN, {}),
    ]
    settings = {"bootstrap.servers": installation.bootstrap}
    with TransactionalDelayProducer(
        settings, listener, f"{installation.name}.checks", ingress=installation.ingress
    ) as producer:
        for value, state, options in sends:
            producer.send_in_transaction(
                target, value, local_transaction=returning(state), **options
            )
        wait_for(lambda: len(set(listener.asked)) == 2, WITHIN_S, "both questions")
        found = arrived(installation, target, 3)
    assert found.keys() == {b"committed", b"committed, later", b"lost, then committed"}
    assert found[b"committed"].key == b"k"
    names = [name for name, _ in found[b"committed"].headers]
    assert names == ["trace", "timer-origin", "timer-due"]
    assert set(listener.asked) == {b"lost, then committed", b"lost, then rolled back"}
