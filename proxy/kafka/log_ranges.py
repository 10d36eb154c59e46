"""Where the partitions of the ingress begin and end, and how near retention is to needed records.

A waiting record is rewritten once it is `roll_after` old. So no needed record should be much older:
if one is, it is shown long before retention deletes it.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import structlog
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from proxy.clock import wall_clock_ms

ASK_WITHIN_S: Final = 5.0
AGAIN_AFTER_S: Final = 0.1
NOT_GIVEN: Final = KafkaError(KafkaError.OFFSET_NOT_AVAILABLE, "the client was given no offset")

log = structlog.get_logger(__name__)


class LogRange(NamedTuple):
    """First offset that the partition still has, and its high watermark."""

    start: int
    end: int


LogRanges: TypeAlias = Callable[[Sequence[int]], dict[int, LogRange]]


def answered_offset(answer: Future[Any]) -> int:
    """The offset in one answer of `list_offsets`; -1 where no record is as young as was asked.

    Waits for it. Raises KafkaException where none has come, which librdkafka does not: while a
    leader is away it answers OFFSET_INVALID and no error (seen in 2.16).
    """
    offset = int(answer.result().offset)
    if offset < -1:
        raise KafkaException(NOT_GIVEN)
    return offset


def log_ranges(admin: AdminClient, topic: str, partitions: Sequence[int]) -> dict[int, LogRange]:
    """Of each partition; records of open transactions count as there.

    Not to be had from a consumer of committed records: it takes the last stable offset for the end.
    `list_offsets` goes on asking a leader that is one no more until the metadata are read anew.
    Raises KafkaException when a leader does not answer in time.
    """
    until_s = time.monotonic() + ASK_WITHIN_S
    while True:
        try:
            starts = _offsets(admin, topic, partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
            ends = _offsets(admin, topic, partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]
        except KafkaException as raised:
            if time.monotonic() > until_s:
                raise
            log.info("waiting for the ends of the ingress", error=raised.args[0].str())
            time.sleep(AGAIN_AFTER_S)
            _find_leaders(admin, topic)
        else:
            return {p: LogRange(starts[p], ends[p]) for p in partitions}


def _find_leaders(admin: AdminClient, topic: str) -> None:
    with suppress(KafkaException):
        admin.list_topics(topic, timeout=ASK_WITHIN_S)


def _offsets(
    admin: AdminClient, topic: str, partitions: Sequence[int], spec: OffsetSpec
) -> dict[int, int]:
    answers: dict[TopicPartition, Any] = admin.list_offsets(
        {TopicPartition(topic, partition): spec for partition in partitions},
        isolation_level=IsolationLevel.READ_UNCOMMITTED,
        request_timeout=ASK_WITHIN_S,
    )
    return {place.partition: answered_offset(answer) for place, answer in answers.items()}


LOOK_EVERY_S: Final = 15.0


class Retained(NamedTuple):
    """start: first offset that the partition still has. young: first one that is young enough.
    end: behind the last one.

    `young` is None where no record is.
    """

    start: int
    young: int | None
    end: int

    def aging(self, floor: int) -> int:
        """How many offsets from the floor on, read or not, are too old: 0 when all is well."""
        young = self.end if self.young is None else self.young
        return max(0, min(young, self.end) - floor)


@dataclass(slots=True)
class _Requests:
    """Questions about a partition, under way."""

    start: Future[Any]
    end: Future[Any]
    young: Future[Any] | None

    def done(self) -> bool:
        is_known = self.start.done() and self.end.done()
        return is_known and (self.young is None or self.young.done())


class RetentionWatch:
    """Asks the broker now and then, without waiting for its answer.

    `aging_after_ms`: the age beyond which a record that is still needed is too old; None where the
    ingress keeps records for ever.
    """

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
        self._under_way: dict[int, _Requests] = {}
        self._retained: dict[int, Retained] = {}

    def retained(self, partition: int) -> Retained | None:
        """As of the last answer of the broker; None before the first."""
        return self._retained.get(partition)

    def look(self, partitions: Iterable[int]) -> None:
        """Called often; asks every LOOK_EVERY_S, and takes the answers that have come."""
        for partition in [p for p, asked in self._under_way.items() if asked.done()]:
            self._take(partition, self._under_way.pop(partition))
        if not self._under_way and self._now_s() >= self._next_look_s:
            self._next_look_s = self._now_s() + LOOK_EVERY_S
            self._ask(list(partitions))

    def _ask(self, partitions: list[int]) -> None:
        self._retained = {p: retained for p, retained in self._retained.items() if p in partitions}
        if not partitions:
            return
        starts = self._offsets(partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
        ends = self._offsets(partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]
        young: dict[int, Future[Any]] = {}
        if self._aging_after_ms is not None:
            since = OffsetSpec.for_timestamp(self._now_ms() - self._aging_after_ms)
            young = self._offsets(partitions, since)
        self._under_way = {p: _Requests(starts[p], ends[p], young.get(p)) for p in partitions}

    def _offsets(self, partitions: list[int], spec: OffsetSpec) -> dict[int, Future[Any]]:
        places = {TopicPartition(self._topic, p): spec for p in partitions}
        answers = self._admin.list_offsets(places)
        return {place.partition: answer for place, answer in answers.items()}

    def _take(self, partition: int, asked: _Requests) -> None:
        try:
            young = answered_offset(asked.young) if asked.young is not None else 0
            self._retained[partition] = Retained(
                answered_offset(asked.start),
                young if young >= 0 else None,
                answered_offset(asked.end),
            )
        except KafkaException as error:
            log.debug("start of the ingress not known", partition=partition, error=str(error))
