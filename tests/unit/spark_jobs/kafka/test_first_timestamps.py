"""The first remaining record bounds the write times of deleted records."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME

from spark_jobs.kafka.broker import Broker, kafka_settings
from spark_jobs.kafka.snapshot import first_timestamps


def _message(topic: str, kind: int, ms: int) -> Any:
    return SimpleNamespace(
        topic=lambda: topic,
        partition=lambda: 0,
        error=lambda: None,
        timestamp=lambda: (kind, ms),
    )


def _broker(monkeypatch: pytest.MonkeyPatch, *messages: Any) -> Broker:
    left = iter(messages)
    consumer = SimpleNamespace(
        list_topics=lambda *_: None,
        assign=lambda _places: None,
        poll=lambda _s: next(left, None),
        close=lambda: None,
    )
    broker = Broker(kafka_settings("localhost:1"))
    monkeypatch.setattr(broker, "consumer", lambda _group: consumer)
    return broker


def test_brokers_own_times_say_that_what_was_deleted_is_older(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = _broker(monkeypatch, _message("a", TIMESTAMP_LOG_APPEND_TIME, 50))
    assert first_timestamps(broker, {("a", 0): 3}) == {("a", 0): 50}


def test_producers_times_say_nothing_of_what_was_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = _broker(
        monkeypatch,
        _message("a", TIMESTAMP_CREATE_TIME, 50),
        _message("b", TIMESTAMP_LOG_APPEND_TIME, 60),
    )
    assert first_timestamps(broker, {("a", 0): 3, ("b", 0): 1}) == {("b", 0): 60}
