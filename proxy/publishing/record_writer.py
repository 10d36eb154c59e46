"""Hands the records of a transaction to the client library."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from confluent_kafka import Producer

from proxy.publishing.hops import outcome_of, successor
from proxy.publishing.refusals import Lessons, Place, batch_bytes
from proxy.publishing.targets import Rules
from proxy.publishing.tracked_sender import CarefulSender
from proxy.records.body import Content, Headers, unpacked
from proxy.records.dead_letter import DeadLetter, dead_letter_headers
from proxy.records.delivery import Delivery
from proxy.records.headers import DUE, FIRST_ORIGIN, ORIGIN, PREFIX
from proxy.records.ingress_partition import IngressPartition
from proxy.records.outcome import Outcome
from proxy.scheduling.auxiliary_record import AuxiliaryRecord, place_of_auxiliary
from proxy.scheduling.batch import Batch, ResolvedBatch
from storage.store import Entry

UNPACKED_AT_ONCE: Final = 128
QUEUE_FULL_WAIT_S: Final = 0.1
NOW: Final = 0
"""The timestamp with which librdkafka takes its own clock's."""


class Sending:
    """Produces batches within the transaction that is open.

    `beat` is called while the client has no room. `exceeds_bytes` gives a record's size where it is
    known to be more than its topic takes.
    """

    def __init__(
        self,
        producer: Producer,
        dead_letter_topic: str,
        outcome_topic: str,
        beat: Callable[[], None],
        rules: dict[str, Rules],
        *,
        is_compressing: bool,
    ) -> None:
        self._producer = producer
        self._dead_letter_topic, self._outcome_topic = dead_letter_topic, outcome_topic
        self._beat, self._rules, self._is_compressing = beat, rules, is_compressing

    def send(self, batches: Sequence[Batch | ResolvedBatch]) -> None:
        """Produce everything, without a delivery report per record: they cost more than it."""
        for batch in batches:
            if isinstance(batch, ResolvedBatch):
                self._deliver_opened(batch)
            else:
                self._deliver(batch)
            for letter in batch.dead_letters:
                self._bury(batch.ingress, letter)
            self._tell(batch)

    def send_carefully(self, batches: Sequence[ResolvedBatch], lessons: Lessons) -> None:
        """Produce everything so that each refusal is known, and touches no other record."""
        careful = CarefulSender(self._produce, self._producer.flush, self._rules, lessons)
        for batch in batches:
            ingress, prefix = batch.ingress, batch.ingress.prefix
            for entry in batch.deliveries:
                careful.send(
                    (prefix, entry.offset),
                    entry.target,
                    entry.value,
                    entry.key,
                    entry.partition,
                    stamped(prefix, entry),
                )
            for place, note in _placed_notes(batch):
                careful.send(
                    place,
                    note.topic,
                    note.value,
                    note.key,
                    note.partition,
                    note.headers,
                )
            for letter in batch.dead_letters:
                self._bury_carefully(ingress, letter, careful, lessons)
            self._say(ingress, [*batch.outcomes, *map(outcome_of, batch.hops)])

    def exceeding_bytes(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Headers
    ) -> int | None:
        """The record's size where it is known to exceed what the topic allows.

        Compressed, the size is known to the broker alone: it has to be tried.
        """
        rules = self._rules.get(topic)
        if rules is None or self._is_compressing:
            return None
        size_bytes = batch_bytes(key, value, headers)
        return size_bytes if size_bytes > rules.batch_bytes else None

    def _deliver(self, batch: Batch) -> None:
        """The hot path: everything due, stamped and handed to librdkafka.

        By position: named arguments make `produce` a quarter dearer.
        """
        prefix, produce = batch.ingress.prefix, self._producer.produce
        for entry, (partition, key, value, headers) in _contents(batch.deliveries):
            said = [header for header in headers if header[0][:6] != PREFIX]
            said.append((ORIGIN, f"{prefix}{entry[1]}"))  # type: ignore[arg-type]
            said.append((DUE, str(entry[0])))  # type: ignore[arg-type]
            try:
                produce(entry[2], value, key, partition, None, None, NOW, said)  # type: ignore[arg-type]
            except BufferError:
                self._produce(entry[2], value, key, partition, headers=said)

    def _deliver_opened(self, batch: ResolvedBatch) -> None:
        for entry in batch.deliveries:
            said = stamped(batch.ingress.prefix, entry)
            self._produce(entry.target, entry.value, entry.key, entry.partition, headers=said)

    def _tell(self, batch: Batch | ResolvedBatch) -> None:
        for _place, note in _placed_notes(batch):
            self._produce(note.topic, note.value, note.key, note.partition, headers=note.headers)
        self._say(batch.ingress, [*batch.outcomes, *map(outcome_of, batch.hops)])

    def _say(self, ingress: IngressPartition, outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:
            self._produce(
                self._outcome_topic,
                outcome.to_json(ingress),
                ingress.origin(outcome.offset).encode(),
            )

    def _bury(self, ingress: IngressPartition, letter: DeadLetter) -> None:
        headers = dead_letter_headers(letter, ingress.origin(letter.offset))
        self._produce(self._dead_letter_topic, letter.value, letter.key, headers=headers)
        self._say(ingress, [_buried(letter)])

    def _bury_carefully(
        self,
        ingress: IngressPartition,
        letter: DeadLetter,
        careful: CarefulSender,
        lessons: Lessons,
    ) -> None:
        """Without the value when the topic cannot take it."""
        topic, place = self._dead_letter_topic, (ingress.prefix, letter.offset)
        headers = dead_letter_headers(letter, ingress.origin(letter.offset))
        exceeds = self.exceeding_bytes(topic, letter.key, letter.value, headers)
        value = None if exceeds or place in lessons.bare else letter.value
        careful.send(place, topic, value, letter.key, -1, headers, is_dead=True)
        self._say(ingress, [_buried(letter)])

    def _produce(self, *args: Any, **kwargs: Any) -> None:
        """Produce one record, waiting while the client has no room."""
        while True:
            try:
                return self._producer.produce(*args, **kwargs)
            except BufferError:
                self._producer.poll(QUEUE_FULL_WAIT_S)
                self._beat()


def stamped(prefix: str, entry: Delivery) -> Headers:
    """The headers of a delivery: the record's own without requests, and the stamps."""
    users = [header for header in entry.headers if header[0][:6] != PREFIX]
    users.append((ORIGIN, f"{prefix}{entry.offset}".encode()))
    users.append((DUE, str(entry.due_ms).encode()))
    first = entry.header(FIRST_ORIGIN)
    return users if first is None else [*users, (FIRST_ORIGIN, first)]


def _contents(entries: Sequence[Entry]) -> Iterator[tuple[Entry, Content]]:
    """Entries with what they hold, unpacked just in time: so it stays in the caches."""
    for start in range(0, len(entries), UNPACKED_AT_ONCE):
        part = entries[start : start + UNPACKED_AT_ONCE]
        yield from zip(part, unpacked(part), strict=True)


def _placed_notes(batch: Batch | ResolvedBatch) -> Iterator[tuple[Place, AuxiliaryRecord]]:
    """Everything written beside deliveries and dead letters, and whose refusal it would be."""
    for record in batch.auxiliary:
        yield place_of_auxiliary(batch.ingress, record), record
    for hop in batch.hops:
        yield (batch.ingress.prefix, hop.delivery.offset), successor(batch.ingress, hop)


def _buried(letter: DeadLetter) -> Outcome:
    detail = f"{letter.reason.code}: {letter.reason.detail}"
    return Outcome(letter.offset, letter.outcome, letter.due_ms, letter.ident, detail)
