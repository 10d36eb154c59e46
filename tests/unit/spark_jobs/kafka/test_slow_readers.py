"""A reader waits for a slow batch while its broker answers, and fails if the broker does not."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from spark_jobs.kafka.broker import SILENT_ASKS, SURE_ASKS, Broker, kafka_settings
from spark_jobs.runtime.errors import BrokerUnreachable

RECORD = SimpleNamespace(error=lambda: None, topic=lambda: "a", partition=lambda: 0)


class SlowConsumer:
    """A consumer that returns None this often before each of two records, then None forever."""

    def __init__(self, silences: int) -> None:
        self._polled: Iterator[SimpleNamespace | None] = iter([*[None] * silences, RECORD] * 2)

    def assign(self, _: object) -> None: ...

    def close(self) -> None: ...

    def poll(self, _: float) -> SimpleNamespace | None:
        return next(self._polled, None)


def _read(monkeypatch: pytest.MonkeyPatch, silences: int, *, answers: bool = True) -> int:
    """Return how many records were read before the reader gave up."""
    broker, read = Broker(kafka_settings("localhost:1")), list[object]()
    consumer = SlowConsumer(silences)

    def list_topics(**_: object) -> None:
        if not answers:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    monkeypatch.setattr(broker, "_admin", SimpleNamespace(list_topics=list_topics, poll=id))
    monkeypatch.setattr(broker, "consumer", lambda _: consumer)
    with pytest.raises(BrokerUnreachable, match="No Kafka broker answers"):
        read.extend(broker.messages({("a", 0): 0, ("a", 1): 0}))
    return len(read)


def test_long_silences_do_not_add_up_while_the_broker_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert _read(monkeypatch, SILENT_ASKS - 1) == 2


def test_silence_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _read(monkeypatch, SILENT_ASKS) == 0


def test_broker_that_does_not_answer_ends_a_long_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert _read(monkeypatch, SURE_ASKS, answers=False) == 2
    assert _read(monkeypatch, SURE_ASKS + 1, answers=False) == 0
