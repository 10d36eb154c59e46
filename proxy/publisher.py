"""The transactional producer: a whole transaction or nothing (DESIGN 5.2, 5.6, 5.9).

A transaction is first produced without delivery reports per record: they cost more than the
record. Only when it has to be aborted is it produced again with them, so that each record that
the broker refuses is known and can end as a dead letter, and the others are not held up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import structlog
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from proxy.careful_sender import CarefulSender, NotFlushed
from proxy.lessons import Lessons, batch_bytes
from proxy.message import (
    DeadLetter,
    dead_entry,
    dead_letter_headers,
    outcome_json,
)
from proxy.protocol import DUE, ORIGIN, PREFIX, Headers, Rejection
from proxy.targets import NONE, Targets
from storage.store import Entry

FRUITLESS_ATTEMPTS: Final = 8
"""After so many in a row that taught nothing the session ends."""
CALL_TIMEOUT_S: Final = 10.0
GIVE_UP_AFTER_S: Final = 30.0
"""Then a new producer finds out what became of the transaction: a client can get stuck, and the
group gives the shards away after max.poll.interval.ms."""
QUEUE_FULL_WAIT_S: Final = 0.1

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


class GroupMoved(Exception):
    """The transaction was aborted: the group has gone on since the caller last heard from it.

    The consumer has to be polled before the shards still owned are planned anew (KIP-447).
    """


OTHER_GENERATION: Final = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
    }
)


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
        *,
        is_compressing: bool = False,
    ) -> None:
        self._producer = producer
        self._targets = targets
        self._dead_letter_topic, self._outcome_topic = dead_letter_topic, outcome_topic
        self._beat, self._is_compressing = beat, is_compressing
        self._call(self._producer.init_transactions)

    def publish(
        self,
        batches: Sequence[Batch],
        offsets: Sequence[TopicPartition],
        group_metadata: object,
        now_ms: int,
    ) -> list[Batch]:
        """Commit all of it in one transaction; what cannot be delivered as dead letters.

        Returns the batches as they were committed. Raises GroupMoved when the group no longer
        takes the offsets of `group_metadata`'s generation, SessionLost when the outcome is not
        known or this producer has been fenced: memory is not to be trusted over the broker.
        """
        lessons = Lessons()
        started, attempt, fruitless = time.monotonic(), 0, 0
        while fruitless < FRUITLESS_ATTEMPTS and time.monotonic() - started < GIVE_UP_AFTER_S:
            topics = {entry[2] for batch in batches for entry in batch.deliveries}
            self._targets.learn(topics, now_ms)
            self._targets.learn_rules(lessons.narrow)
            is_careful = attempt > 0 or not topics.isdisjoint(self._targets.rules)
            batches = [self._settle(batch, lessons) for batch in batches]
            try:
                self._producer.begin_transaction()
                self._produce_all(batches, lessons if is_careful else None)
                self._commit(list(offsets), group_metadata)
            except TransactionAborted as aborted:
                attempt += 1
                learnt = self._after_abort(aborted, batches, lessons, attempt)
                fruitless = 0 if learnt else fruitless + 1
            except KafkaException as error:
                raise SessionLost(str(error)) from error
            else:
                return list(batches)
        raise SessionLost(f"a transaction failed {attempt} times")

    def close(self) -> None:
        """Give the producer up with all it has in hand; the broker keeps what is committed.

        Its own `close` would abort and flush first, which can wait for a broker that is away.
        """
        self._producer.purge()
        del self._producer

    def _after_abort(
        self, aborted: TransactionAborted, batches: Sequence[Batch], lessons: Lessons, attempt: int
    ) -> int:
        learnt = lessons.draw()
        self._targets.forget({e[2] for b in batches for e in b.deliveries})
        log.warning(
            "transaction aborted", error=str(aborted), attempt=attempt, records_learnt=learnt
        )
        return learnt

    def _settle(self, batch: Batch, lessons: Lessons) -> Batch:
        """Move what is known to be undeliverable from the deliveries to the dead letters."""
        partitions, rules = self._targets.partitions, self._targets.rules
        kept: list[Entry] = []
        dead: list[DeadLetter] = []
        for entry in batch.deliveries:
            if not entry[3] < partitions.get(entry[2], NONE):
                dead.append(dead_entry(entry, self._targets.why_not(entry)))
            elif lessons.refused and (batch.origin, entry[1]) in lessons.refused:
                dead.append(dead_entry(entry, lessons.refused[batch.origin, entry[1]]))
            elif entry[2] in rules and (reason := self._against_rules(batch.origin, entry)):
                dead.append(dead_entry(entry, reason))
            else:
                kept.append(entry)
        if not dead:
            return batch
        return Batch(batch.origin, kept, [*batch.dead_letters, *dead])

    def _against_rules(self, origin: str, entry: Entry) -> Rejection | None:
        due_ms, offset, target, _partition, key, value, headers = entry
        rules = self._targets.rules[target]
        if rules.needs_key and key is None:
            why = f"the topic {target} is compacted: its records need a key"
            return Rejection("publish-failed", why)
        stamped = _stamped(origin, due_ms, offset, headers)
        size_bytes = self._exceeding_bytes(target, key, value, stamped)
        if size_bytes is None:
            return None
        return Rejection(
            "too-large",
            f"the record takes {size_bytes} bytes, the topic {target} allows "
            f"{rules.batch_bytes} (max.message.bytes)",
        )

    def _exceeding_bytes(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Headers
    ) -> int | None:
        """The record's size where it is known to exceed what the topic allows.

        Compressed, the size is known to the broker alone: it has to be tried.
        """
        rules = self._targets.rules.get(topic)
        if rules is None or self._is_compressing:
            return None
        size_bytes = batch_bytes(key, value, headers)
        return size_bytes if size_bytes > rules.batch_bytes else None

    def _produce_all(self, batches: Sequence[Batch], lessons: Lessons | None) -> None:
        try:
            if lessons is None:
                for batch in batches:
                    self._deliver(batch.origin, batch.deliveries)
                    for letter in batch.dead_letters:
                        self._bury(batch.origin, letter)
            else:
                self._produce_carefully(batches, lessons)
        except (KafkaException, NotFlushed) as error:
            self._abort()  # a record sent before has failed: nothing more is taken
            raise TransactionAborted(str(error)) from error

    def _produce_carefully(self, batches: Sequence[Batch], lessons: Lessons) -> None:
        careful = CarefulSender(
            self._produce_when_room, self._producer.flush, self._targets.rules, lessons
        )
        for origin, deliveries, dead_letters in batches:
            for due_ms, offset, target, partition, key, value, headers in deliveries:
                stamped = _stamped(origin, due_ms, offset, headers)
                careful.send((origin, offset), target, value, key, partition, stamped)
            for letter in dead_letters:
                self._bury(origin, letter, careful, lessons)

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

    def _bury(
        self,
        origin: str,
        letter: DeadLetter,
        careful: CarefulSender | None = None,
        lessons: Lessons | None = None,
    ) -> None:
        """A dead letter and its outcome; without the value when the topic cannot take it."""
        text = f"{origin}{letter.offset}"
        topic, headers = self._dead_letter_topic, dead_letter_headers(letter, text)
        if careful is None or lessons is None:
            self._produce_when_room(topic, letter.value, letter.key, headers=headers)
        else:
            place = (origin, letter.offset)
            exceeds = self._exceeding_bytes(topic, letter.key, letter.value, headers)
            value = None if exceeds or place in lessons.bare else letter.value
            careful.send(place, topic, value, letter.key, -1, headers, is_dead=True)
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
        self._call(self._producer.send_offsets_to_transaction, offsets, group_metadata)
        self._call(self._producer.commit_transaction)

    def _call(self, call: Callable[..., None], *args: object) -> None:
        """One transactional call; SessionLost when its result stays unknown (DESIGN 5.6).

        After a time-out librdkafka would take the same call once more, but that can wait for
        ever (2.16: send_offsets_to_transaction, after a broker was killed). The next session
        asks the broker instead.
        """
        try:
            call(*args, CALL_TIMEOUT_S)
        except KafkaException as raised:
            error: KafkaError = raised.args[0]
            if not error.txn_requires_abort():
                raise SessionLost(error.str()) from raised
            self._abort()
            kind = GroupMoved if error.code() in OTHER_GENERATION else TransactionAborted
            raise kind(error.str()) from raised

    def _abort(self) -> None:
        """Abort; what was produced and not yet sent is purged, its reports served."""
        try:
            self._producer.abort_transaction(CALL_TIMEOUT_S)
        except KafkaException as error:
            raise SessionLost(f"abort failed: {error}") from error


def _stamped(origin: str, due_ms: int, offset: int, headers: Headers) -> Headers:
    """The headers of a delivery: the record's own without requests, and the stamps."""
    users = [header for header in headers if header[0][:6] != PREFIX]
    return [*users, (ORIGIN, f"{origin}{offset}".encode()), (DUE, str(due_ms).encode())]
