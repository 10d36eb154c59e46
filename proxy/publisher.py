"""The transactional producer: a whole transaction or nothing (DESIGN 5.2, 5.6, 5.9).

A transaction is first produced without delivery reports per record: they cost more than the
record. Only when it has to be aborted is it produced again with them, so that each record that
the broker refuses is known and can end as a dead letter, and the others are not held up.

The first commit is waited for in a thread of its own: the caller reads on meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from typing import Any, Final, NamedTuple, TypeAlias

import structlog
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from proxy.body import Content, Delivery, Headers, asks_for_partition, delivery, unpacked
from proxy.careful_sender import CarefulSender, NotFlushed
from proxy.lessons import Lessons, batch_bytes
from proxy.message import (
    DeadLetter,
    dead_entry,
    dead_letter_headers,
    outcome_json,
)
from proxy.protocol import DUE, ORIGIN, PREFIX, Rejection
from proxy.targets import NONE, Targets
from storage.store import Entry

FRUITLESS_ATTEMPTS: Final = 8
"""After so many in a row that taught nothing the session ends."""
CALL_TIMEOUT_S: Final = 10.0
GIVE_UP_AFTER_S: Final = 30.0
"""Then a new producer finds out what became of the transaction: a client can get stuck, and the
group gives the shards away after max.poll.interval.ms."""
LOOK_EVERY_S: Final = 0.5
STUCK_AFTER_S: Final = 2.0
"""A call that has not returned so long after its time-out never will."""
QUEUE_FULL_WAIT_S: Final = 0.1
UNPACKED_AT_ONCE: Final = 128
NOW: Final = 0
"""The timestamp with which librdkafka takes its own clock's."""

log = structlog.get_logger(__name__)


class Batch(NamedTuple):
    """One shard's part of a transaction. `origin` is `topic/partition/`."""

    origin: str
    deliveries: Sequence[Entry]
    dead_letters: Sequence[DeadLetter]

    def opened(self) -> Opened:
        """The batch with every body unpacked."""
        deliveries = [delivery(entry) for entry in self.deliveries]
        return Opened(self.origin, deliveries, self.dead_letters)

    def contents(self) -> Iterator[tuple[Entry, Content]]:
        """Entries with what they hold, unpacked just in time: so it stays in the caches."""
        for start in range(0, len(self.deliveries), UNPACKED_AT_ONCE):
            part = self.deliveries[start : start + UNPACKED_AT_ONCE]
            yield from zip(part, unpacked(part), strict=True)


class Opened(NamedTuple):
    """A batch that has been looked into: a record may have moved to the dead letters."""

    origin: str
    deliveries: Sequence[Delivery]
    dead_letters: Sequence[DeadLetter]

    def contents(self) -> Iterator[tuple[Delivery, Content]]:
        """Entries with what they hold."""
        return ((entry, entry[3:]) for entry in self.deliveries)


Publishing: TypeAlias = Generator[None, None, Sequence[Batch | Opened]]
"""A transaction being published: run to its end, it returns the batches as committed."""


class SessionLost(Exception):
    """This producer cannot go on: drop all shards and recover them from the broker."""


class ClientStuck(SessionLost):
    """A call of the client library does not return, whatever time-out it was given.

    librdkafka 2.16, issues 5456 and 5511: send_offsets_to_transaction, when the group's
    coordinator has been away.
    """

    def __init__(self, waited_s: float) -> None:
        super().__init__(f"the client library has not answered a call for {waited_s:.0f} s")


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
    `commits` is where commits are waited for, one at a time.
    """

    def __init__(
        self,
        producer: Producer,
        targets: Targets,
        dead_letter_topic: str,
        outcome_topic: str,
        beat: Callable[[], None],
        commits: Executor,
        *,
        is_compressing: bool = False,
    ) -> None:
        self._producer = producer
        self._targets = targets
        self._dead_letter_topic, self._outcome_topic = dead_letter_topic, outcome_topic
        self._beat, self._commits, self._is_compressing = beat, commits, is_compressing
        self._called_at_s = 0.0
        self._call(self._producer.init_transactions)

    def publish(
        self,
        batches: Sequence[Batch],
        offsets: Sequence[TopicPartition],
        group_metadata: object,
        now_ms: int,
    ) -> Publishing:
        """Commit all of it in one transaction; what cannot be delivered as dead letters.

        Yields while a commit is under way; nothing else may be asked of this object until the
        rest has been run. Returns the batches as they were committed. Raises GroupMoved when the
        group no longer takes the offsets of `group_metadata`'s generation, SessionLost when the
        outcome is not known or this producer has been fenced: memory is not to be trusted over
        the broker.
        """
        lessons = Lessons()
        started, attempt, fruitless = time.monotonic(), 0, 0
        while fruitless < FRUITLESS_ATTEMPTS and time.monotonic() - started < GIVE_UP_AFTER_S:
            topics = {entry[2] for batch in batches for entry in batch.deliveries}
            self._targets.learn(topics, now_ms)
            self._targets.learn_rules(lessons.narrow)
            try:
                is_careful = attempt > 0 or not topics.isdisjoint(self._targets.rules)
                done = self._attempt(batches, topics, lessons, is_careful=is_careful)
                self._called_at_s = time.monotonic()
                committing = self._commits.submit(self._commit, list(offsets), group_metadata)
                yield
                self._wait_for(committing)
            except TransactionAborted as aborted:
                attempt += 1
                learnt = self._after_abort(aborted, batches, lessons, attempt)
                fruitless = 0 if learnt else fruitless + 1
            except KafkaException as error:
                raise SessionLost(str(error)) from error
            else:
                return done
        raise SessionLost(f"a transaction failed {attempt} times")

    def close(self) -> None:
        """Give the producer up with all it has in hand; the broker keeps what is committed.

        Its own `close` would abort and flush first, which can wait for a broker that is away.
        """
        self._commits.shutdown()
        self._producer.purge(blocking=False)
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

    def _needs_a_look(self, topics: Iterable[str], batches: Iterable[Batch]) -> bool:
        """Whether a target is not known to take records, or a record asks for a partition."""
        known = self._targets.partitions
        if any(known.get(topic, NONE) == NONE for topic in topics):
            return True
        return any(asks_for_partition(entry[3]) for batch in batches for entry in batch.deliveries)

    def _settle(self, batch: Batch, lessons: Lessons) -> Opened:
        """Move what is known to be undeliverable from the deliveries to the dead letters."""
        partitions, rules = self._targets.partitions, self._targets.rules
        kept: list[Delivery] = []
        dead: list[DeadLetter] = []
        opened = batch.opened()
        for entry in opened.deliveries:
            if not entry[3] < partitions.get(entry[2], NONE):
                dead.append(dead_entry(entry, self._targets.why_not(entry)))
            elif lessons.refused and (batch.origin, entry[1]) in lessons.refused:
                dead.append(dead_entry(entry, lessons.refused[batch.origin, entry[1]]))
            elif entry[2] in rules and (reason := self._against_rules(batch.origin, entry)):
                dead.append(dead_entry(entry, reason))
            else:
                kept.append(entry)
        return Opened(batch.origin, kept, [*batch.dead_letters, *dead])

    def _against_rules(self, origin: str, entry: Delivery) -> Rejection | None:
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

    def _attempt(
        self,
        batches: Sequence[Batch],
        topics: Iterable[str],
        lessons: Lessons,
        *,
        is_careful: bool,
    ) -> Sequence[Batch | Opened]:
        """Begin a transaction and produce the batches; gives them as they were produced."""
        self._producer.begin_transaction()
        try:
            if not is_careful and not self._needs_a_look(topics, batches):
                self._produce(batches)
                return batches
            opened = [self._settle(batch, lessons) for batch in batches]
            if is_careful:
                self._produce_carefully(opened, lessons)
            else:
                self._produce(opened)
            return opened
        except (KafkaException, NotFlushed) as error:
            self._abort()  # a record sent before has failed: nothing more is taken
            raise TransactionAborted(str(error)) from error

    def _produce(self, batches: Sequence[Batch | Opened]) -> None:
        for batch in batches:
            self._deliver(batch)
            for letter in batch.dead_letters:
                self._bury(batch.origin, letter)

    def _produce_carefully(self, batches: Sequence[Opened], lessons: Lessons) -> None:
        careful = CarefulSender(
            self._produce_when_room, self._producer.flush, self._targets.rules, lessons
        )
        for origin, deliveries, dead_letters in batches:
            for due_ms, offset, target, partition, key, value, headers in deliveries:
                stamped = _stamped(origin, due_ms, offset, headers)
                careful.send((origin, offset), target, value, key, partition, stamped)
            for letter in dead_letters:
                self._bury(origin, letter, careful, lessons)

    def _deliver(self, batch: Batch | Opened) -> None:
        """The hot path: everything due, stamped and handed to librdkafka.

        By position: named arguments make `produce` a quarter dearer.
        """
        origin, produce = batch.origin, self._producer.produce
        for entry, (partition, key, value, headers) in batch.contents():
            stamped = [header for header in headers if header[0][:6] != PREFIX]
            stamped.append((ORIGIN, f"{origin}{entry[1]}"))  # type: ignore[arg-type]
            stamped.append((DUE, str(entry[0])))  # type: ignore[arg-type]
            try:
                produce(entry[2], value, key, partition, None, None, NOW, stamped)  # type: ignore[arg-type]
            except BufferError:
                self._produce_when_room(entry[2], value, key, partition, headers=stamped)

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

    def _wait_for(self, committing: Future[None]) -> None:
        """Raises what the commit raised, or ClientStuck when the client ignores its time-out."""
        while True:
            try:
                return committing.result(LOOK_EVERY_S)
            except TimeoutError:
                self._beat()
                waited_s = time.monotonic() - self._called_at_s
                if waited_s > CALL_TIMEOUT_S + STUCK_AFTER_S:
                    raise ClientStuck(waited_s) from None

    def _commit(self, offsets: list[TopicPartition], group_metadata: object) -> None:
        self._call(self._producer.send_offsets_to_transaction, offsets, group_metadata)
        self._call(self._producer.commit_transaction)

    def _call(self, call: Callable[..., None], *args: object) -> None:
        """One transactional call; SessionLost when its result stays unknown (DESIGN 5.6).

        After a time-out librdkafka would take the same call once more, but that can wait for
        ever (2.16: send_offsets_to_transaction, after a broker was killed). The next session
        asks the broker instead.
        """
        self._called_at_s = time.monotonic()
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
        self._called_at_s = time.monotonic()
        try:
            self._producer.abort_transaction(CALL_TIMEOUT_S)
        except KafkaException as error:
            raise SessionLost(f"abort failed: {error}") from error


def _stamped(origin: str, due_ms: int, offset: int, headers: Headers) -> Headers:
    """The headers of a delivery: the record's own without requests, and the stamps."""
    users = [header for header in headers if header[0][:6] != PREFIX]
    return [*users, (ORIGIN, f"{origin}{offset}".encode()), (DUE, str(due_ms).encode())]
