"""Records about shed offsets, read from the settings topic up to its end."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.errors import StartOverRefused
from tests.unit.kafka.settings.followed_topic import Topic, following


class ShedTopic(Topic):
    """Topic with only partition 0, up to `high`."""

    def __init__(self, high: int) -> None:
        super().__init__()
        self.ends = {0: high}

    def assign(self, places: list[Any]) -> None:
        assert [(place.partition, place.offset) for place in places] == [(0, 0)]


def test_of_shed_records_all_are_read_and_nothing_else() -> None:
    topic, taken = ShedTopic(3), list[str]()
    for key in ("shed/a", "paused/b", "shed/c"):
        topic.note(key, b"{}")
    topic.end(0, offset=3)
    following(topic).read_missed(lambda key, _value: taken.append(key), lambda: True)
    assert taken == ["shed/a", "shed/c"]


def test_a_transaction_that_may_hold_the_last_shed_record_is_waited_for() -> None:
    topic, reader, taken = ShedTopic(3), ShedTopic(1), list[str]()
    reader.end(0, offset=1)
    reader.note("shed/a", b"{}")
    reader.end(0, offset=3)
    following(topic, reader).read_missed(lambda key, _value: taken.append(key), lambda: bool(taken))
    assert taken == ["shed/a"]


def test_shed_records_that_are_not_there_stop_the_start() -> None:
    topic = ShedTopic(3)
    topic.end(0, offset=3)
    with pytest.raises(StartOverRefused, match="does not hold all"):
        following(topic).read_missed(lambda _key, _value: None, lambda: False)


def test_a_shed_record_that_cannot_be_read_is_passed_over() -> None:
    topic = ShedTopic(1)
    topic.note("shed/a", b"junk")
    topic.end(0, offset=1)

    def take(key: str, value: bytes | None) -> None:
        raise ValueError(key)

    following(topic).read_missed(take, lambda: True)
