"""Unknown end offsets are not guessed: a full topic would look empty."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, TopicPartition

from spark_jobs.kafka import broker as module
from spark_jobs.kafka.broker import Broker, kafka_settings
from spark_jobs.runtime.errors import BrokerUnreachable


def _broker(monkeypatch: pytest.MonkeyPatch, *offsets: int) -> Broker:
    """Return a broker with a new offset after each look-up of leaders. The last offset stays."""
    left = list(offsets)

    def look(**_: object) -> SimpleNamespace:
        del left[: len(left) > 1]
        return SimpleNamespace(topics={})

    def answers(places: dict[TopicPartition, Any], **_: object) -> dict[TopicPartition, Any]:
        answer: Future[Any] = Future()
        answer.set_result(SimpleNamespace(offset=left[0]))
        return dict.fromkeys(places, answer)

    broker = Broker(kafka_settings("localhost:1"))
    monkeypatch.setattr(
        broker, "_admin", SimpleNamespace(list_offsets=answers, list_topics=look, poll=id)
    )
    monkeypatch.setattr(module, "AGAIN_AFTER_S", 0)
    return broker


def test_end_that_is_not_known_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LED_WITHIN_S", -1)
    broker = _broker(monkeypatch, OFFSET_INVALID)
    for ask in (broker.log_starts, broker.high_watermarks, broker.stable_ends):
        with pytest.raises(BrokerUnreachable, match="has no leader at present"):
            ask([("a", 0)])


def test_leader_that_moves_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = _broker(monkeypatch, OFFSET_INVALID, OFFSET_INVALID, 7)
    assert broker.stable_ends([("a", 0)]) == {("a", 0): 7}


def test_no_record_as_young_as_asked_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _broker(monkeypatch, -1).offsets_at([("a", 0)], at_ms=5) == {("a", 0): -1}
