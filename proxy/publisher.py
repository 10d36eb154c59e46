"""The transactional producer: a whole transaction or nothing (DESIGN 5.2, 5.6, 5.9).

A transaction is first produced without delivery reports per record: they cost more than the
record. Only when it has to be aborted is it produced again with them, so that each record that
the broker refuses is known and can end as a dead letter, and the others are not held up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

import structlog
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka import Message as Report

from proxy.message import (
    DeadLetter,
    dead_entry,
    dead_letter_headers,
    outcome_json,
)
from proxy.protocol import DUE, ORIGIN, PREFIX, Headers, Rejection
from proxy.targets import NONE, Targets
from storage.store import Entry

ATTEMPTS: Final = 8
"""Each aborted attempt teaches something; a transaction that still fails is the session's end."""
COMMIT_TIMEOUT_S: Final = 10.0
GIVE_UP_AFTER_S: Final = 240.0
"""Under the consumer's max.poll.interval.ms: later the group has given the shards away."""
QUEUE_FULL_WAIT_S: Final = 0.1

Place: TypeAlias = tuple[str, int]
"""Origin prefix and offset: names one ingress record."""

log = structlog.get_logger(__name__)


class Batch(NamedTuple):
    """One shard's part of a transaction. `origin` is `topic/partition/`."""

    origin: str
    deliveries: Sequence[Entry]
    dead_letters: Sequence[DeadLetter]


class SessionLost(Exception):
    """This producer cannot go on: drop all shards and recover them from the broker."""


class TransactionAborted(Exception):
    """The transaction was aborted and may be made again."""

    def __init__(self, error: KafkaError) -> None:
        super().__init__(error.str())
        self.error = error


REFUSED: Final = {
    KafkaError.MSG_SIZE_TOO_LARGE: "too-large",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "not-authorised",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "target-unknown",
    KafkaError.TOPIC_EXCEPTION: "target-illegal",
    KafkaError._UNKNOWN_TOPIC: "target-unknown",
    KafkaError._UNKNOWN_PARTITION: "partition-bad",
    KafkaError.INVALID_MSG: "publish-failed",
    KafkaError.RECORD_LIST_TOO_LARGE: "too-large",
    KafkaError.INVALID_RECORD: "publish-failed",
    KafkaError.POLICY_VIOLATION: "publish-failed",
    KafkaError.INVALID_TIMESTAMP: "publish-failed",
}
"""Errors that a record meets again each time; all others are the broker's or the network's."""


@dataclass(slots=True)
class _Lessons:
    """What aborted attempts taught about single records."""

    refused: dict[Place, Rejection] = field(default_factory=dict)
    alone: set[Place] = field(default_factory=set)
    bare: set[Place] = field(default_factory=set)
    reported: dict[Place, KafkaError] = field(default_factory=dict)
    dead_reported: set[Place] = field(default_factory=set)

    def draw(self) -> set[Place]:
        """Turn the last attempt's reports into lessons; the places that taught something.

        A batch can be too large although each of its records is not: such a record is first
        sent alone.
        """
        learnt = set(self.dead_reported)
        self.bare |= self.dead_reported
        for place, error in self.reported.items():
            code = REFUSED.get(error.code())
            if code is None:
                continue
            learnt.add(place)
            if code == "too-large" and place not in self.alone:
                self.alone.add(place)
            else:
                self.refused[place] = Rejection(
                    code, f"the broker refused the record: {error.str()}"
                )
        self.reported, self.dead_reported = {}, set()
        return learnt


class Publisher:
    """Publishes batches and offsets in one transaction of the transactional `producer`.

    `beat` is called while waiting for the broker, so that waiting is not taken for hanging.
    """

    def __init__(
        self,
        producer: Producer,
        targets: Targets,
        dead_letter_topic: str,
        outcome_topic: str,
        beat: Callable[[], None],
    ) -> None:
        self._producer = producer
        self._targets = targets
        self._dead_letter_topic, self._outcome_topic = dead_letter_topic, outcome_topic
        self._beat = beat
        self._insist(self._producer.init_transactions)

    def publish(
        self,
        batches: Sequence[Batch],
        offsets: Sequence[TopicPartition],
        group_metadata: object,
        now_ms: int,
    ) -> list[Batch]:
        """Commit all of it in one transaction; what cannot be delivered as dead letters.

        Returns the batches as they were committed. Raises SessionLost when the outcome is not
        known or this producer has been fenced: memory is not to be trusted over the broker.
        """
        lessons = _Lessons()
        for attempt in range(ATTEMPTS):
            self._targets.learn({e[2] for b in batches for e in b.deliveries}, now_ms)
            batches = [self._settle(batch, lessons) for batch in batches]
            try:
                self._producer.begin_transaction()
                self._produce_all(batches, lessons if attempt else None)
                self._commit(list(offsets), group_metadata)
            except TransactionAborted as aborted:
                self._after_abort(aborted, batches, lessons, attempt)
            except KafkaException as error:
                raise SessionLost(str(error)) from error
            else:
                return list(batches)
        raise SessionLost(f"a transaction failed {ATTEMPTS} times")

    def _after_abort(
        self, aborted: TransactionAborted, batches: Sequence[Batch], lessons: _Lessons, attempt: int
    ) -> None:
        learnt = lessons.draw()
        self._targets.forget({e[2] for b in batches for e in b.deliveries})
        log.warning(
            "transaction aborted",
            error=str(aborted),
            attempt=attempt + 1,
            records_learnt=len(learnt),
        )

    def _settle(self, batch: Batch, lessons: _Lessons) -> Batch:
        """Move what is known to be undeliverable from the deliveries to the dead letters."""
        partitions = self._targets.partitions
        kept: list[Entry] = []
        dead: list[DeadLetter] = []
        for entry in batch.deliveries:
            if not entry[3] < partitions.get(entry[2], NONE):
                dead.append(dead_entry(entry, self._targets.why_not(entry)))
            elif lessons.refused and (batch.origin, entry[1]) in lessons.refused:
                dead.append(dead_entry(entry, lessons.refused[batch.origin, entry[1]]))
            else:
                kept.append(entry)
        if not dead:
            return batch
        return Batch(batch.origin, kept, [*batch.dead_letters, *dead])

    def _produce_all(self, batches: Sequence[Batch], lessons: _Lessons | None) -> None:
        for batch in batches:
            if lessons is None:
                self._deliver(batch.origin, batch.deliveries)
            else:
                self._deliver_watched(batch.origin, batch.deliveries, lessons)
            for letter in batch.dead_letters:
                self._bury(batch.origin, letter, lessons)

    def _deliver(self, origin: str, entries: Sequence[Entry]) -> None:
        """The hot path: everything due, stamped and handed to librdkafka."""
        produce = self._producer.produce
        for due_ms, offset, target, partition, key, value, headers in entries:
            stamped = [header for header in headers if header[0][:6] != PREFIX]
            stamped.append((ORIGIN, f"{origin}{offset}"))
            stamped.append((DUE, str(due_ms)))
            try:
                produce(target, value, key, partition, headers=stamped)
            except BufferError:
                self._produce_when_room(target, value, key, partition, headers=stamped)

    def _deliver_watched(self, origin: str, entries: Sequence[Entry], lessons: _Lessons) -> None:
        """As `_deliver`, with a report for each record and suspects in batches of their own."""
        for due_ms, offset, target, partition, key, value, headers in entries:
            place = (origin, offset)
            stamped: Headers = [header for header in headers if header[0][:6] != PREFIX]
            stamped += [(ORIGIN, f"{origin}{offset}".encode()), (DUE, str(due_ms).encode())]
            send = partial(
                self._produce_when_room,
                target, value, key, partition,
                headers=stamped,
                on_delivery=partial(_note_report, lessons.reported, place),
            )  # fmt: skip
            if place in lessons.alone:
                self._producer.flush(COMMIT_TIMEOUT_S)
                send()
                self._producer.flush(COMMIT_TIMEOUT_S)
            else:
                send()

    def _bury(self, origin: str, letter: DeadLetter, lessons: _Lessons | None) -> None:
        """A dead letter and its outcome; without the value when the topic cannot take it."""
        place, text = (origin, letter.offset), f"{origin}{letter.offset}"
        on_delivery = None
        if lessons is not None:
            on_delivery = partial(_note_dead_report, lessons.dead_reported, place)
        is_bare = lessons is not None and place in lessons.bare
        self._produce_when_room(
            self._dead_letter_topic,
            None if is_bare else letter.value,
            letter.key,
            headers=dead_letter_headers(letter, text),
            on_delivery=on_delivery,
        )
        detail = f"{letter.reason.code}: {letter.reason.detail}"
        outcome = outcome_json(text, "dead-lettered", letter.due_ms, None, detail)
        self._produce_when_room(self._outcome_topic, outcome, text.encode())

    def _produce_when_room(self, *args: Any, **kwargs: Any) -> None:
        while True:
            try:
                return self._producer.produce(*args, **kwargs)
            except BufferError:
                self._producer.poll(QUEUE_FULL_WAIT_S)
                self._beat()

    def _commit(self, offsets: list[TopicPartition], group_metadata: object) -> None:
        self._insist(self._producer.send_offsets_to_transaction, offsets, group_metadata)
        self._insist(self._producer.commit_transaction)

    def _insist(self, call: Callable[..., None], *args: object) -> None:
        """Make a transactional call until its result is known (DESIGN 5.6).

        After a time-out the only legal call is the same one again.
        """
        deadline = time.monotonic() + GIVE_UP_AFTER_S
        while True:
            try:
                call(*args, COMMIT_TIMEOUT_S)
                return
            except KafkaException as raised:
                error: KafkaError = raised.args[0]
                self._beat()
                if error.txn_requires_abort():
                    self._abort()
                    raise TransactionAborted(error) from raised
                if error.fatal() or not error.retriable() or time.monotonic() > deadline:
                    raise SessionLost(error.str()) from raised
                log.warning("broker slow to answer", call=call.__name__, error=error.str())

    def _abort(self) -> None:
        """Abort; what was produced and not yet sent is purged, its reports served."""
        try:
            self._producer.abort_transaction(COMMIT_TIMEOUT_S)
        except KafkaException as error:
            raise SessionLost(f"abort failed: {error}") from error


def _note_report(
    reported: dict[Place, KafkaError], place: Place, error: KafkaError | None, _: Report
) -> None:
    if error is not None:
        reported[place] = error


def _note_dead_report(
    reported: set[Place], place: Place, error: KafkaError | None, _: Report
) -> None:
    if error is not None and error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        reported.add(place)
