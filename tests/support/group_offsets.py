"""Committed offsets of consumer groups. If a group has no coordinator yet, calls wait for one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tests.support.waiting import wait_for

TIMEOUT_S: Final = 180
NOT_LOOKED_AFTER_YET: Final = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}


def committed(consumer: Consumer, places: Sequence[TopicPartition]) -> list[TopicPartition]:
    found: list[TopicPartition] = []
    _once_looked_after(lambda: found.extend(consumer.committed([*places], TIMEOUT_S)))
    return found


def commit(consumer: Consumer, places: Sequence[TopicPartition]) -> None:
    _once_looked_after(lambda: consumer.commit(offsets=[*places], asynchronous=False))


def _once_looked_after(ask: Callable[[], object]) -> None:
    def is_answered() -> bool:
        try:
            ask()
        except KafkaException as failed:
            if failed.args[0].code() not in NOT_LOOKED_AFTER_YET:
                raise
            return False
        return True

    wait_for(is_answered, TIMEOUT_S, "a broker to look after the group")
