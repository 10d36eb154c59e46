"""Offset ranges of ingress partitions, and a watch for needed records that retention may delete."""

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final, NamedTuple

import structlog
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from proxy.clock import wall_clock_ms

ASK_WITHIN_S: Final = 5.0
AGAIN_AFTER_S: Final = 0.1
NOT_GIVEN: Final = KafkaError(KafkaError.OFFSET_NOT_AVAILABLE, "the client returned no offset")

log = structlog.get_logger(__name__)


class LogRange(NamedTuple):
    """The first offset that the partition still has, and its high watermark."""

    start: int
    end: int


def answered_offset(answer: Future[Any]) -> int:
    """Wait for the offset from `list_offsets`. For a time, -1 means that all records are older.
    Raises KafkaException, also if librdkafka 2.16 answers OFFSET_INVALID for a missing leader."""
    offset = int(answer.result().offset)
    if offset < -1:
        raise KafkaException(NOT_GIVEN)
    return offset


def log_ranges(admin: AdminClient, topic: str, partitions: Sequence[int]) -> dict[int, LogRange]:
    """Return each partition's range, including open transactions. Raises KafkaException.

    A consumer of committed records would report the last stable offset as the end. After an error,
    metadata are read to find new leaders: `list_offsets` would go on asking the old leaders.
    """
    until_s = time.monotonic() + ASK_WITHIN_S
    while True:
        try:
            asked = _ask(admin, topic, partitions, *_ends())
            return {p: LogRange(*map(answered_offset, answers)) for p, answers in asked.items()}
        except KafkaException as raised:
            if time.monotonic() > until_s:
                raise
            log.info("waiting for the ends of the ingress", error=raised.args[0].str())
            time.sleep(AGAIN_AFTER_S)
            with suppress(KafkaException):  # finds the leaders
                admin.list_topics(topic, timeout=ASK_WITHIN_S)


def _ends() -> tuple[OffsetSpec, ...]:
    return OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]


def _ask(
    admin: AdminClient, topic: str, partitions: Iterable[int], *specs: OffsetSpec
) -> dict[int, list[Future[Any]]]:
    """Ask for offsets. Return futures of the answers by partition, in the order of `specs`."""
    places = {partition: TopicPartition(topic, partition) for partition in partitions}
    answers = [
        admin.list_offsets(
            dict.fromkeys(places.values(), spec),
            isolation_level=IsolationLevel.READ_UNCOMMITTED,
            request_timeout=ASK_WITHIN_S,
        )
        for spec in specs
    ]
    return {p: [of_spec[place] for of_spec in answers] for p, place in places.items()}


LOOK_EVERY_S: Final = 15.0


class Retained(NamedTuple):
    """The offset range of a partition. From `young` on, records are under `aging_after_ms` old."""

    start: int
    young: int | None
    end: int

    def aging(self, floor: int) -> int:
        """Return the number of offsets from the floor on that are older than `aging_after_ms`."""
        young = self.end if self.young is None else self.young
        return max(0, min(young, self.end) - floor)


class RetentionWatch:
    """Asks the broker, without blocking, for records older than `aging_after_ms`."""

    def __init__(
        self,
        admin: AdminClient,
        topic: str,
        aging_after_ms: int | None,
        now_ms: Callable[[], int] = wall_clock_ms,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._admin, self._topic, self._aging_after_ms = admin, topic, aging_after_ms
        self._now_ms, self._now_s = now_ms, now_s
        self._next_look_s = 0.0
        self._under_way: dict[int, list[Future[Any]]] = {}
        self._retained: dict[int, Retained] = {}

    def retained(self, partition: int) -> Retained | None:
        return self._retained.get(partition)

    def look(self, partitions: Iterable[int]) -> None:
        """Ask every LOOK_EVERY_S, and take answers that have come."""
        for partition, asked in list(self._under_way.items()):
            if all(answer.done() for answer in asked):
                del self._under_way[partition]
                self._take(partition, asked)
        if not self._under_way and self._now_s() >= self._next_look_s:
            self._next_look_s = self._now_s() + LOOK_EVERY_S
            self._ask(list(partitions))

    def _ask(self, partitions: list[int]) -> None:
        self._retained = {p: retained for p, retained in self._retained.items() if p in partitions}
        if not partitions:
            return
        specs = _ends()
        if self._aging_after_ms is not None:
            specs += (OffsetSpec.for_timestamp(self._now_ms() - self._aging_after_ms),)
        self._under_way = _ask(self._admin, self._topic, partitions, *specs)

    def _take(self, partition: int, asked: Sequence[Future[Any]]) -> None:
        try:
            start, end, *aging = map(answered_offset, asked)
            young = aging[0] if aging else 0
            self._retained[partition] = Retained(start, young if young >= 0 else None, end)
        except KafkaException as error:
            log.debug("start of the ingress not known", partition=partition, error=str(error))
