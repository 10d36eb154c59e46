"""Reads ranges of offsets of a topic: committed records, in no group, with a bound on memory."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any, Final, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from proxy.kafka.ingress.ingress import Fetched
from proxy.records.message import Message

AT_ONCE_RECORDS: Final = 500
POLL_S: Final = 0.5
ASK_TIMEOUT_S: Final = 8.0
SILENT_AT_MOST_S: Final = 15.0
READER_CONFIG: Final[dict[str, str | int | bool]] = {
    "enable_auto_commit": False,
    "enable_partition_eof": True,
    "isolation_level": "read_committed",
    "auto_offset_reset": "earliest",
    "max_poll_interval_ms": 86_400_000,
    "queued_max_messages_kbytes": 16_384,
    "fetch_wait_max_ms": 20,
}
"""A record may be polled for late, at the pace of a replay; what waits meanwhile is bounded."""


class TopicReader:
    """Reads `topic`. `new_consumer` makes one with READER_CONFIG.

    Each range is read by a consumer of its own: after a jump, what was fetched before it can
    still come (librdkafka issue 2256). `after_poll` is called after each few hundred records; what
    it raises ends the reading. Raises KafkaException, also when nothing comes for
    SILENT_AT_MOST_S.
    """

    def __init__(
        self,
        new_consumer: Callable[[], Consumer],
        topic: str,
        partitions: Sequence[int],
        now_s: Callable[[], float] = time.monotonic,
        after_poll: Callable[[], None] = lambda: None,
    ) -> None:
        self._new_consumer, self._topic = new_consumer, topic
        self.partitions, self._now_s = tuple(partitions), now_s
        self._after_poll = after_poll

    def spans(self) -> dict[int, range]:
        """By partition: the first offset still there, and the end of what is committed."""
        with closing(self._new_consumer()) as consumer:
            return {
                partition: range(
                    *consumer.get_watermark_offsets(self._at(partition), ASK_TIMEOUT_S, False)
                )
                for partition in self.partitions
            }

    def first_since(self, time_ms: int, spans: dict[int, range]) -> dict[int, int]:
        """By partition: the first offset with that timestamp or a later one; the end if none."""
        asked = [self._at(partition, time_ms) for partition in spans]
        with closing(self._new_consumer()) as consumer:
            answers = consumer.offsets_for_times(asked, ASK_TIMEOUT_S)
        for answer in answers:
            if answer.error is not None:
                raise KafkaException(answer.error)
        return {
            a.partition: a.offset if a.offset >= 0 else spans[a.partition].stop for a in answers
        }

    def records(self, partition: int, span: range) -> Iterator[Message]:
        """The committed records within the span, their headers readable (`ingress.Fetched`)."""
        if not span:
            return
        with closing(self._new_consumer()) as consumer:
            consumer.assign([self._at(partition, span.start)])
            for message in self._until(consumer, partition, span.stop):
                if span.start <= message.offset() < span.stop:
                    yield message

    def _until(self, consumer: Consumer, partition: int, end: int) -> Iterator[Message]:
        heard_s = self._now_s()
        trouble = KafkaError(KafkaError._TIMED_OUT, "no record came in time")
        is_done = False
        while not is_done:
            fetched = Fetched()
            errors = fetched.add(_poll(consumer))
            records = fetched.records[partition]
            yield from records
            self._after_poll()
            heard_s = self._now_s() if records else heard_s
            is_done = bool(records) and records[-1].offset() >= end - 1
            for message in errors:
                if _ends_partition(message):
                    is_done = is_done or message.offset() >= end
                else:
                    trouble = _bearable(message)
            if self._now_s() - heard_s > SILENT_AT_MOST_S:
                raise KafkaException(trouble)

    def _at(self, partition: int, offset: int = 0) -> TopicPartition:
        return TopicPartition(self._topic, partition, offset)


def _poll(consumer: Consumer) -> list[Any]:
    """What has come; waits for the first only."""
    first = consumer.poll(POLL_S)
    return [] if first is None else [first, *consumer.consume(AT_ONCE_RECORDS, 0)]


def _ends_partition(message: Message) -> bool:
    error = message.error()
    return isinstance(error, KafkaError) and error.code() == KafkaError._PARTITION_EOF


def _bearable(message: Message) -> KafkaError:
    """An error that may pass; raises any other."""
    error = cast(KafkaError, message.error())
    if error.fatal() or not error.retriable():
        raise KafkaException(error)
    return error
