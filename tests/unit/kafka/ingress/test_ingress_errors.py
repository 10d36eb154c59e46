"""Errors that the consumer returns in place of records."""

from __future__ import annotations

from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from proxy.kafka.ingress import Ingress


class Failing:
    def __init__(self, code: int, place: tuple[int, int] | None = (2, 17)) -> None:
        self._error, self._place = KafkaError(code), place

    def poll(self, timeout: float) -> Failing:
        return self

    def consume(self, count: int, timeout: float) -> list[Failing]:
        return []

    def error(self) -> KafkaError:
        return self._error

    def partition(self) -> int | None:
        return self._place and self._place[0]

    def offset(self) -> int | None:
        return self._place and self._place[1]


def _ingress(code: int, place: tuple[int, int] | None = (2, 17)) -> Ingress:
    return Ingress(cast(Any, Failing(code, place)), "timer.ingress", lambda: cast(Any, None))


@pytest.mark.parametrize("code", [KafkaError._FATAL, KafkaError.FENCED_INSTANCE_ID])
def test_dead_consumer_ends_the_session_though_its_error_is_not_marked(code: int) -> None:
    assert not KafkaError(code).fatal()
    with pytest.raises(KafkaException):
        _ingress(code).fetch(0)


@pytest.mark.parametrize("code", [KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN])
def test_broker_that_is_away_is_waited_for(code: int) -> None:
    fetched = _ingress(code, None).fetch(0)
    assert (dict(fetched.records), fetched.ends) == ({}, {})


def test_end_of_a_partition_is_told_with_its_offset() -> None:
    assert _ingress(KafkaError._PARTITION_EOF).fetch(0).ends == {2: 17}
