"""Sends records so that each refusal is known and touches no other record (DESIGN 5.9)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from confluent_kafka import KafkaError, Message

from proxy.publishing.refusals import (
    BATCH_BYTES,
    IN_COMPANY_BYTES,
    Lessons,
    Place,
    Reported,
    batch_bytes,
)
from proxy.publishing.targets import Rules
from proxy.records.body import Headers

FLUSH_TIMEOUT_S: Final = 2.0


class NotFlushed(Exception):
    """What was sent does not arrive, so that nothing can be sent alone: abort and try again."""


class CarefulSender:
    """One attempt's sending, with a report per record.

    `produce` is a producer's, `flush` waits for what was produced. In topics that have `rules`
    batches are ended before they grow too large. What the lessons want alone gets a batch of its
    own.
    """

    def __init__(
        self,
        produce: Callable[..., None],
        flush: Callable[[float], int],
        rules: Mapping[str, Rules],
        lessons: Lessons,
    ) -> None:
        self._produce, self._flush_producer = produce, flush
        self._rules, self._lessons = rules, lessons
        self._filled_bytes: dict[str, int] = {}

    def send(
        self,
        place: Place,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        headers: Headers,
        *,
        is_dead: bool = False,
    ) -> None:
        """Produce one record; a refusal is noted in the lessons under its place.

        Raises NotFlushed when the transaction cannot go on.
        """
        is_alone = (topic, place) in self._lessons.alone
        if is_alone or not self._fits(topic, key, value, headers):
            self._flush()
        note = partial(_note, self._lessons.reported, place, topic, is_dead)
        self._produce(topic, value, key, partition, headers=headers, on_delivery=note)
        if is_alone:
            self._flush()

    def _fits(self, topic: str, key: bytes | None, value: bytes | None, headers: Headers) -> bool:
        """Whether the record still fits into a batch with what was sent there since the flush.

        It is counted by topic, as if all went into one partition.
        """
        rules = self._rules.get(topic)
        if rules is None:
            return True
        grown_bytes = batch_bytes(key, value, headers) - BATCH_BYTES + IN_COMPANY_BYTES
        filled_bytes = self._filled_bytes.get(topic, BATCH_BYTES)
        fits = filled_bytes + grown_bytes <= rules.batch_bytes
        self._filled_bytes[topic] = grown_bytes + (filled_bytes if fits else BATCH_BYTES)
        return fits

    def _flush(self) -> None:
        left = self._flush_producer(FLUSH_TIMEOUT_S)
        if left:
            raise NotFlushed(f"{left} records not sent after {FLUSH_TIMEOUT_S:g} s")


def _note(
    reported: dict[Place, Reported],
    place: Place,
    topic: str,
    is_dead: bool,
    error: KafkaError | None,
    _: Message,
) -> None:
    if error is not None:
        reported[place] = Reported(error, topic, is_dead)
