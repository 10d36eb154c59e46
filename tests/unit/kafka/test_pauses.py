"""Pauses in the settings topic: who reads them, and who passes over them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import structlog
from confluent_kafka import KafkaError, KafkaException

from proxy.kafka import pauses as pauses_module
from proxy.kafka.pauses import Pauses, key_of, pattern_of
from proxy.kafka.policy_topic import PolicyTopic
from tests.support.simulation.stand_in import Record

TOPIC = "timer.settings"
GROUP = "delay-proxy"


class SettingsTopic:
    """A consumer of a settings topic with two partitions; `arrived` comes next."""

    def __init__(self) -> None:
        self.arrived: list[Record] = []

    def list_topics(self, topic: str, timeout: float) -> Any:
        found = SimpleNamespace(error=None, partitions={0: None, 1: None})
        return SimpleNamespace(topics={topic: found})

    def assign(self, places: list[Any]) -> None:
        assert len(places) == 2

    def poll(self, timeout: float) -> Record | None:
        return self.arrived.pop(0) if self.arrived else None

    def consume(self, limit: int, timeout: float) -> list[Record]:
        assert timeout == 0
        taken, self.arrived = self.arrived[:limit], self.arrived[limit:]
        return taken

    def note(self, key: str, value: bytes | None, partition: int = 0) -> None:
        self.arrived.append(Record(TOPIC, partition, 0, key.encode(), value, [], 0))

    def end(self, partition: int, code: int = KafkaError._PARTITION_EOF) -> None:
        error = KafkaError(code, "end")
        self.arrived.append(Record(TOPIC, partition, 0, None, None, [], 0, error))


def following(topic: SettingsTopic, group_id: str = GROUP) -> Pauses:
    return Pauses(cast(Any, topic), TOPIC, group_id, lambda: None)


def test_all_pauses_there_are_count_once_loaded() -> None:
    topic = SettingsTopic()
    topic.note(key_of(GROUP, "orders-*"), b"{}")
    topic.end(1)
    topic.note(key_of(GROUP, "bills"), b"{}")
    topic.note(key_of(GROUP, "bills"), None)
    topic.end(0)
    pauses = following(topic)
    pauses.load()
    assert pauses.patterns == {"orders-*"}


def test_loading_that_comes_to_no_end_is_an_error() -> None:
    topic = SettingsTopic()
    topic.end(1)
    with pytest.raises(KafkaException):
        following(topic).load()


def test_a_look_says_whether_anything_has_changed() -> None:
    topic = SettingsTopic()
    pauses = following(topic)
    assert not pauses.look()
    topic.note(key_of(GROUP, "orders"), b"{}")
    assert pauses.look()
    topic.note(key_of(GROUP, "orders"), b"{}")
    topic.end(0, KafkaError._TRANSPORT)
    assert not pauses.look()
    topic.note(key_of(GROUP, "orders"), None)
    assert pauses.look()
    assert pauses.patterns == frozenset()


def test_there_is_a_most_of_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pauses_module, "MOST", 2)
    topic = SettingsTopic()
    pauses = following(topic)
    for name in "abc":
        topic.note(key_of(GROUP, name), b"{}")
    with structlog.testing.capture_logs() as logs:
        pauses.look()
    assert pauses.patterns == {"a", "b"}
    assert [entry["pattern"] for entry in logs] == ["c"]


@pytest.mark.parametrize(
    "key",
    [
        None,
        b"",
        b"\xff",
        b"0123456789abcdef",
        b"served/delay-proxy/timer.ingress/0",
        b"paused/other/orders",
        b"paused/delay-proxy/",
        b"paused/delay-proxy/a/b",
    ],
)
def test_what_is_not_about_a_pause_of_this_group_is_passed_over(key: bytes | None) -> None:
    assert pattern_of(GROUP, key) is None


def test_who_reads_policies_passes_over_pauses_without_a_word() -> None:
    reader = PolicyTopic.__new__(PolicyTopic)
    reader._policies, reader._served = {}, {}
    with structlog.testing.capture_logs() as logs:
        for value in (b"{}", None):
            key = key_of(GROUP, "orders").encode()
            reader._note(cast(Any, Record(TOPIC, 0, 0, key, value, [], 0)), set())
        reader._note(cast(Any, Record(TOPIC, 0, 0, b"odd", b"{", [], 0)), set())
    assert [entry["key"] for entry in logs] == ["odd"]
