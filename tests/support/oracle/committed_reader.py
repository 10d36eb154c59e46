"""Reader of the committed records of whole topics."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Final, NamedTuple, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tests.support.quiet_clients import QUIET, admin_client
from tests.support.records import Incoming, Partition, ends_of, incoming

ASK_TIMEOUT_S: Final = 180
SILENT_S: Final = 180.0
"""Time without records before the end of a partition, after which reading fails."""


class Counted(NamedTuple):
    read_to: int = 0
    records: int = 0


class Placed(NamedTuple):
    topic: str
    record: Incoming

    @property
    def place(self) -> str:
        return f"{self.topic}/{self.record.partition}/{self.record.offset}"


class CommittedReader:
    """Consumer without a group. Missing topics count as empty."""

    def __init__(self, bootstrap: str) -> None:
        self._counted: dict[Partition, Counted] = {}
        self._admin = admin_client(bootstrap)
        self._consumer = Consumer(
            {
                **QUIET,
                "bootstrap.servers": bootstrap,
                "group.id": f"judge-{uuid.uuid4().hex[:8]}",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "allow.auto.create.topics": False,
                "fetch.wait.max.ms": 50,
            }
        )

    def read(
        self, topics: Sequence[str], at_least: int = 0, *, awaits_open: bool = True
    ) -> Iterator[Placed]:
        """Yield all records up to the current end of every partition, and at least `at_least`. With
        `awaits_open`, wait for the end of transactions that are open now, also if the broker has
        confirmed their end. Otherwise the end lies before open transactions."""
        places = {place: 0 for topic in topics for place in self._partitions(topic)}
        goals = ends_of(self._admin, places) if awaits_open else {}
        for message in self._messages(places, goals, at_least):
            yield Placed(message.topic() or "", incoming(message))

    def count(
        self,
        topics: Sequence[str],
        at_least: int = 0,
        deadline: float = 0.0,
        *,
        awaits_open: bool = False,
    ) -> int:
        """Return the number of records, waiting for `at_least` until the deadline. Records counted
        before are not read again. `awaits_open` is as in `read`."""
        places = {place: 0 for topic in topics for place in self._partitions(topic)}
        before = {place: self._counted.get(place, Counted()) for place in places}
        starts = {place: counted.read_to for place, counted in before.items()}
        missing = at_least - sum(counted.records for counted in before.values())
        goals = ends_of(self._admin, places) if awaits_open else {}
        for message in self._messages(starts, goals, missing, deadline):
            place = _place(message)
            before[place] = Counted((message.offset() or 0) + 1, before[place].records + 1)
        self._counted |= before
        return sum(counted.records for counted in before.values())

    def _messages(
        self,
        starts: Mapping[Partition, int],
        goals: Mapping[Partition, int],
        at_least: int,
        deadline: float = 0.0,
    ) -> Iterator[Message]:
        self._consumer.assign([TopicPartition(*place, start) for place, start in starts.items()])
        seen, ended, heard = 0, set[Partition](), time.monotonic()
        read_to = dict(starts)
        while len(ended) < len(starts) or seen < at_least:
            if time.monotonic() > (deadline or heard + SILENT_S):
                break
            for message in self._consumer.consume(1000, 0.05):
                if (error := message.error()) is None:
                    if _is_fresh(message, read_to):
                        seen, heard = seen + 1, time.monotonic()
                        yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    if (message.offset() or 0) >= goals.get(_place(message), 0):
                        ended.add(_place(message))
                elif not error.retriable():
                    raise KafkaException(error)
        assert at_least > 0 or len(ended) == len(starts), f"{[*starts]} not read to their ends"

    def _partitions(self, topic: str) -> list[Partition]:
        found = self._consumer.list_topics(topic, ASK_TIMEOUT_S).topics[topic]
        return [(topic, number) for number in found.partitions]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._consumer.close()


def _place(message: Message) -> Partition:
    return message.topic() or "", message.partition() or 0


def _is_fresh(message: Message, read_to: dict[Partition, int]) -> bool:
    """Return whether the message is new: the client sometimes goes back
    (proxy/kafka/ingress.py)."""
    place, offset = _place(message), message.offset() or 0
    if offset < read_to[place]:
        return False
    read_to[place] = offset + 1
    return True
