"""Start and end of a partition are the broker's answer, or unknown."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaException, TopicPartition

from proxy.kafka import log_ranges as module
from proxy.kafka.log_ranges import LogRange, log_ranges


class Answering:
    """Fake admin client that returns these offsets, and others after a look-up of the leaders."""

    def __init__(self, offsets: Iterable[int], found: Iterable[int]) -> None:
        self._offsets, self._found = iter(offsets), iter(found)

    def list_topics(self, _topic: str, timeout: float) -> None:
        self._offsets = self._found

    def list_offsets(self, places: dict[TopicPartition, Any], **_: object) -> dict[Any, Any]:
        return {place: self._answer() for place in places}

    def _answer(self) -> Future[Any]:
        answer: Future[Any] = Future()
        answer.set_result(SimpleNamespace(offset=next(self._offsets)))
        return answer


def ranges_of(offsets: Iterable[int], found: Iterable[int] = ()) -> dict[int, LogRange]:
    return log_ranges(cast(Any, Answering(offsets, found)), "timer.ingress", [0])


@pytest.fixture(autouse=True)
def _asked_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AGAIN_AFTER_S", 0)


@pytest.mark.parametrize("before", [(OFFSET_INVALID, 9), (3, OFFSET_INVALID)], ids=["start", "end"])
def test_answer_without_an_offset_is_asked_for_again_of_its_leader(before: tuple[int, ...]) -> None:
    assert ranges_of(before, found=[3, 9]) == {0: LogRange(3, 9)}


def test_where_no_offset_comes_none_is_made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ASK_WITHIN_S", -1)
    with pytest.raises(KafkaException, match="no offset"):
        ranges_of([OFFSET_INVALID, OFFSET_INVALID])
