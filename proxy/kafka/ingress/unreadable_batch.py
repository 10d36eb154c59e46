"""Finds a record batch of the ingress that the client library cannot read, and its end.

The error of such a batch carries the batch's first offset, also if reading begins later in the
batch. So a read from any offset shows whether the offset lies in the batch.
"""

import time
from collections.abc import Callable
from contextlib import closing
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

UNREADABLE_BATCH: Final = frozenset(
    {
        KafkaError._BAD_COMPRESSION,  # noqa: SLF001
        KafkaError._BAD_MSG,  # noqa: SLF001
        KafkaError._NOT_IMPLEMENTED,  # noqa: SLF001
    }
)
"""The batch does not unpack within the client library's limits, is damaged, or is of a kind that it
does not know."""
POLL_S: Final = 0.5
ANSWER_WITHIN_S: Final = 15.0


class UnreadableBatch(NamedTuple):
    """A batch with the offsets from `base` to before `end`, and the client library's error."""

    base: int
    end: int
    error: str


def unreadable_batch(
    new_consumer: Callable[[], Consumer], topic: str, partition: int, offset: int
) -> UnreadableBatch | None:
    """Return the batch at which reading from `offset` fails. Return None if a record is read, or
    the partition ends there. Raises KafkaException, also after ANSWER_WITHIN_S of silence.
    """
    probe = _Probe(new_consumer, topic, partition)
    error = probe.read(offset)
    if error is None:
        return None
    base, said = error
    return UnreadableBatch(base, probe.end_of(base), said)


class _Probe:
    """Reads from single offsets, with a new consumer each time. A consumer that jumps can still
    give records fetched before the jump (librdkafka issue 2256)."""

    def __init__(self, new_consumer: Callable[[], Consumer], topic: str, partition: int) -> None:
        self._new_consumer, self._topic, self._partition = new_consumer, topic, partition

    def read(self, offset: int) -> tuple[int, str] | None:
        """Return the first offset of the batch at which reading fails, and the error, or None."""
        with closing(self._new_consumer()) as consumer:
            consumer.assign([TopicPartition(self._topic, self._partition, offset)])
            until_s = time.monotonic() + ANSWER_WITHIN_S
            trouble = KafkaError(KafkaError._TIMED_OUT, "no record came in time")
            while time.monotonic() < until_s:
                message = consumer.poll(POLL_S)
                error = None if message is None else message.error()
                if message is None or (error is not None and message.topic() is None):
                    trouble = error or trouble
                elif error is None or error.code() == KafkaError._PARTITION_EOF:
                    return None
                elif error.code() in UNREADABLE_BATCH:
                    return message.offset() or 0, error.str()
                else:
                    raise KafkaException(error)
        raise KafkaException(trouble)

    def end_of(self, base: int) -> int:
        """Return the first offset behind the batch. The steps begin small, as most batches are."""
        log_end = self._log_end()
        inside, step = base, 1
        while (beyond := min(base + step, log_end)) < log_end and self._is_in(beyond, base):
            inside, step = beyond, 2 * step
        while beyond - inside > 1:
            middle = (inside + beyond) // 2
            if self._is_in(middle, base):
                inside = middle
            else:
                beyond = middle
        return beyond

    def _is_in(self, offset: int, base: int) -> bool:
        error = self.read(offset)
        return error is not None and error[0] == base

    def _log_end(self) -> int:
        with closing(self._new_consumer()) as consumer:
            place = TopicPartition(self._topic, self._partition)
            return int(consumer.get_watermark_offsets(place, ANSWER_WITHIN_S, cached=False)[1])
