"""A topic that is deleted while an audit asks about many leaves the others as they are."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection

from spark_jobs.histories.reader import ReadSoFar, unread_ends
from spark_jobs.kafka.broker import Broker, kafka_settings
from spark_jobs.kafka.snapshot import EndRange, Range, Snapshot
from spark_jobs.runtime.errors import BrokerUnreachable


def _ids(
    monkeypatch: pytest.MonkeyPatch, answers: dict[str, str | int], asked: Iterable[str]
) -> dict[str, str]:
    """Ask for topic ids. An answer is an id or an error code."""

    def describe(_: TopicCollection, **__: object) -> dict[str, Future[Any]]:
        found: dict[str, Future[Any]] = {}
        for topic, answer in answers.items():
            found[topic] = Future()
            if isinstance(answer, int):
                found[topic].set_exception(KafkaException(KafkaError(answer)))
            else:
                found[topic].set_result(SimpleNamespace(topic_id=answer))
        return found

    broker = Broker(kafka_settings("localhost:1"))
    monkeypatch.setattr(broker, "_admin", SimpleNamespace(describe_topics=describe, poll=id))
    return broker.topic_ids([*asked])


def test_deleted_topic_has_no_id(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: dict[str, str | int] = {"gone": KafkaError.UNKNOWN_TOPIC_OR_PART, "kept": "a+b/c"}
    assert _ids(monkeypatch, answers, answers) == {"kept": "a-b_c"}


def test_other_refusals_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: dict[str, str | int] = {"a": KafkaError.TOPIC_AUTHORIZATION_FAILED}
    with pytest.raises(BrokerUnreachable, match="refuses this"):
        _ids(monkeypatch, answers, answers)


def test_a_refused_group_is_named_with_the_remedy() -> None:
    refused = KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED, "Group authorization failed.")
    error = Broker(kafka_settings("localhost:1")).explained(refused, "g")
    assert "no right to see the group g at localhost:1" in error.found
    assert "Describe on this group. `kafka-delay-proxy rights --for audit`" in error.remedy


def test_topic_without_an_id_is_not_taken_for_a_new_one() -> None:
    held = EndRange(Range("gone", 0, 5, 9), has_lost=False, first_ms=None)
    taken = Snapshot("i", "id", (), (held,), {}, {}, 0)
    before = ReadSoFar("i", "id", "g", {}, {("gone", 0): 9}, {"gone": "id-gone"})
    (end,) = unread_ends(taken, before)
    assert (end.range.start, end.range.end, end.is_recreated) == (9, 9, False)
