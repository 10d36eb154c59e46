"""Waits for the next record with few requests, where none has come for a while.

The group's consumer asks a hundred times a second, so that many records come with each answer. It
cannot be told to ask less often: meanwhile its partitions are paused, and another consumer asks,
whose answers the broker holds until there is something, or half a second is over. A transaction
that was aborted is something, too: the partition ends behind it.

A pause throws away what the group's consumer is fetching. One batch may take seconds to fetch or to
unpack. So it is paused only at the ends of its partitions, once it has said that it is there.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, cast

from confluent_kafka import Consumer, KafkaError, TopicPartition

from proxy.kafka.ingress.resuming import resume_at
from proxy.records.message import Message

QUIET_S: Final = 2.0
LONGEST_S: Final = 30.0
MOMENT_S: Final = 0.25
"""After so long the group's consumer fetches again for a moment: its connections stay in use, the
ends of partitions are known, and whatever keeps the other consumer from hearing lasts no longer."""


class LongPoll:
    """Waits in the place of `consumer`, of which it pauses what nobody else has paused.

    `new_listener` makes the consumer that asks instead. An error of it counts as something that has
    come: the group's consumer says what is wrong, if it meets it, too.
    """

    def __init__(
        self,
        consumer: Consumer,
        new_listener: Callable[[], Consumer],
        topic: str,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._consumer, self._new_listener = consumer, new_listener
        self._topic, self._now_s = topic, now_s
        self._made: Consumer | None = None
        self._paused: Sequence[TopicPartition] = ()
        self._offsets: Mapping[int, int] = {}
        self._ends: dict[int, int] = {}
        """Where the group's consumer has come to an end, by partition, since it was resumed."""
        self._next_s = now_s() + QUIET_S
        """When it may begin, or, once it has, when it is to end."""

    def heard(self) -> None:
        """Records have come: only after a while without any is it worth its while again."""
        self._next_s = self._now_s() + QUIET_S

    def reached(self, ends: Mapping[int, int]) -> None:
        """The group's consumer has come to these ends of partitions."""
        self._ends.update(ends)

    def wait(
        self, wait_s: float, next_offsets: Callable[[], Mapping[int, int]], *, is_idle: bool
    ) -> float:
        """Wait for a record at or beyond the offsets, by partition, or for an end beyond them; how
        much of the time is left to wait for the consumer. It begins with that only when `is_idle`
        and the consumer has come to the end of each partition.
        """
        began_s = self._now_s()
        if not self._paused and is_idle and began_s >= self._next_s:
            self._begin(next_offsets())
        if not self._paused:
            return wait_s
        if self._hears(began_s + wait_s):
            self.end()
            return max(0.0, wait_s - (self._now_s() - began_s))
        if began_s >= self._next_s:
            self.end()
            self._next_s = began_s + MOMENT_S
        return 0.0

    def end(self) -> None:
        """The consumer fetches again. To be called before partitions come, go, or are paused."""
        if self._paused:
            self._listener.unassign()
            resume_at(self._consumer, self._paused)
            self._paused = ()
            self._ends.clear()
            self.heard()

    def close(self) -> None:
        """Give the other consumer up."""
        if self._made is not None:
            self._made.close()
        self._made, self._paused = None, ()

    def _hears(self, until_s: float) -> bool:
        """Until then: that a partition ends where it is read on is nothing new."""
        while True:
            message = cast(Message | None, self._listener.poll(max(0.0, until_s - self._now_s())))
            if message is None:
                return False
            error = cast(KafkaError | None, message.error())
            is_end = error is not None and error.code() == KafkaError._PARTITION_EOF
            if not is_end or message.offset() > self._offsets.get(message.partition(), -1):
                return True

    def _begin(self, offsets: Mapping[int, int]) -> None:
        if any(self._ends.get(partition) != at for partition, at in offsets.items()):
            return
        places = [TopicPartition(self._topic, p, at) for p, at in offsets.items()]
        if places:
            self._consumer.pause(places)
            self._paused, self._offsets = places, dict(offsets)
            self._listener.assign(places)
        self._next_s = self._now_s() + LONGEST_S

    @property
    def _listener(self) -> Consumer:
        if self._made is None:
            self._made = self._new_listener()
        return self._made
