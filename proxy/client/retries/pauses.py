"""Keeps partitions from being read while their records cannot be taken, so that polling goes on."""

from collections.abc import Callable, Collection
from collections.abc import Set as AbstractSet

from confluent_kafka import Consumer, TopicPartition

from proxy.client.place import Partition


class Pauses:
    """Which partitions of a consumer are paused. It pauses seldom: what a paused partition has
    fetched already is fetched again.
    """

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._paused: set[Partition] = set()
        self.is_all = False

    @property
    def paused(self) -> AbstractSet[Partition]:
        """Those that are not read now."""
        return self._paused

    def pause_all(self) -> None:
        """Read nothing, also of partitions that the consumer got since the last call."""
        self.is_all = True
        self._set(_assigned(self._consumer))

    def pause_only(self, partitions: AbstractSet[Partition]) -> None:
        """Read all partitions but these."""
        self.is_all = False
        if partitions or self._paused:
            self._set(partitions & _assigned(self._consumer))

    def forget(self, partitions: Collection[Partition]) -> None:
        """They go to another consumer; if they come back they are to be read."""
        self._change(self._consumer.resume, self._paused.intersection(partitions))
        self._paused.difference_update(partitions)

    def _set(self, wanted: AbstractSet[Partition]) -> None:
        self._change(self._consumer.pause, wanted - self._paused)
        self._change(self._consumer.resume, self._paused - wanted)
        self._paused = set(wanted)

    def _change(
        self, change: Callable[[list[TopicPartition]], object], partitions: AbstractSet[Partition]
    ) -> None:
        if partitions:
            change([TopicPartition(topic, number) for topic, number in partitions])


def _assigned(consumer: Consumer) -> set[Partition]:
    return {(one.topic, one.partition) for one in consumer.assignment()}
