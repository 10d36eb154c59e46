"""The marks topic is awaited only after its creation."""

from collections.abc import Iterator
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from proxy.dead_letters.topics import await_there


class Reader:
    """Reader that fails with these errors in turn, and then knows the topic."""

    def __init__(self, codes: Iterator[int]) -> None:
        self._codes = codes
        self.asked = 0

    def spans(self) -> dict[int, range]:
        self.asked += 1
        for code in self._codes:
            raise KafkaException(KafkaError(code))
        return {0: range(0)}


def test_topic_that_the_brokers_do_not_all_know_yet_is_waited_for() -> None:
    codes = [KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE]
    reader, slept = Reader(iter(codes)), list[float]()
    await_there(cast(Any, reader), slept.append)
    assert (reader.asked, len(slept)) == (3, 2)


def test_any_other_error_is_told_at_once() -> None:
    reader, slept = Reader(iter([KafkaError.TOPIC_AUTHORIZATION_FAILED])), list[float]()
    with pytest.raises(KafkaException):
        await_there(cast(Any, reader), slept.append)
    assert not slept


def test_topic_that_never_comes_is_an_error_in_the_end() -> None:
    reader = Reader(iter([KafkaError.UNKNOWN_TOPIC_OR_PART] * 10_000))
    with pytest.raises(KafkaException):
        await_there(cast(Any, reader), lambda _: None)
