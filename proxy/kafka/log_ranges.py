"""Where the partitions of the ingress begin and end."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeAlias

import structlog
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

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
