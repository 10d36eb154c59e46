"""The transactional producer: a whole transaction or nothing (DESIGN 5.2, 5.6, 5.9).

A transaction is first produced without delivery reports per record: they cost more than the
record. Only when it has to be aborted is it produced again with them, so that each record that
the broker refuses is known and can end as a dead letter, and the others are not held up.

The first commit is waited for in a thread of its own: the caller reads on meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Executor, Future
from typing import Final, TypeAlias

import structlog
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from proxy.publishing.dispatch import Settling
from proxy.publishing.record_writer import Sending
from proxy.publishing.refusals import Lessons
from proxy.publishing.release_control import ReleaseControl
from proxy.publishing.targets import NONE, Targets
from proxy.publishing.tracked_sender import NotFlushed
from proxy.records.body import asks_for_partition
from proxy.records.entry import target_of
from proxy.requests.policy import RetryGroup
from proxy.scheduling.batch import Batch, ResolvedBatch

FRUITLESS_ATTEMPTS: Final = 8
"""After so many in a row that taught nothing the session ends."""
CALL_TIMEOUT_S: Final = 10.0
GIVE_UP_AFTER_S: Final = 30.0
"""Then a new producer finds out what became of the transaction: a client can get stuck, and the
group gives the shards away after max.poll.interval.ms."""
LOOK_EVERY_S: Final = 0.5
STUCK_AFTER_S: Final = 2.0
"""A call that has not returned so long after its time-out never will."""

log = structlog.get_logger(__name__)


Publishing: TypeAlias = Generator[None, None, Sequence[Batch | ResolvedBatch]]
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
    `commits` is where commits are waited for, one at a time. `retry` says when what could not be
    published is tried again, `release` what is held back though it could be.
    """

    def __init__(
        self,
        producer: Producer,
        targets: Targets,
        dead_letter_topic: str,
        outcome_topic: str,
        beat: Callable[[], None],
        commits: Executor,
        retry: RetryGroup,
        release: ReleaseControl,
        *,
        is_compressing: bool = False,
    ) -> None:
        self._producer = producer
        self._targets, self._retry, self._release = targets, retry, release
        self._beat, self._commits = beat, commits
        self._sending = Sending(
            producer,
            dead_letter_topic,
            outcome_topic,
            beat,
            targets.rules,
            is_compressing=is_compressing,
        )
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
        settling = Settling(
            self._targets, self._sending, lessons, self._retry, self._release, now_ms
        )
        started, attempt, fruitless = time.monotonic(), 0, 0
        while fruitless < FRUITLESS_ATTEMPTS and time.monotonic() - started < GIVE_UP_AFTER_S:
            topics = {entry[2] for batch in batches for entry in batch.deliveries}
            self._targets.learn(self._asked_about(topics, batches), now_ms)
            self._targets.learn_rules(lessons.narrow)
            try:
                is_careful = attempt > 0 or not topics.isdisjoint(self._targets.rules)
                needs_a_look = is_careful or self._needs_a_look(topics, batches, now_ms)
                done = self._attempt(
                    batches, settling if needs_a_look else None, lessons, is_careful=is_careful
                )
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

    def _asked_about(self, topics: Iterable[str], batches: Sequence[Batch]) -> set[str]:
        """The topics that the broker is to be asked about, before anything is sent there."""
        own = {batch.ingress.topic for batch in batches if batch.auxiliary}
        asked = {record.topic for batch in batches for record in batch.auxiliary}
        return set(map(target_of, topics)) | (asked - own)

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
        self._targets.forget({target_of(e[2]) for b in batches for e in b.deliveries})
        log.warning(
            "transaction aborted", error=str(aborted), attempt=attempt, records_learnt=learnt
        )
        return learnt

    def _needs_a_look(self, topics: Iterable[str], batches: Sequence[Batch], now_ms: int) -> bool:
        """Whether a record is more than a delivery by key to a topic known to take it."""
        known = self._targets.partitions
        if any(known.get(topic, NONE) == NONE for topic in topics):
            return True
        return self._release.concerns(topics, batches, now_ms) or any(
            bool(batch.auxiliary) or any(asks_for_partition(entry[3]) for entry in batch.deliveries)
            for batch in batches
        )

    def _attempt(
        self,
        batches: Sequence[Batch],
        settling: Settling | None,
        lessons: Lessons,
        *,
        is_careful: bool,
    ) -> Sequence[Batch | ResolvedBatch]:
        """Begin a transaction and produce the batches; gives them as they were produced.

        With `settling` each record is looked into first.
        """
        self._producer.begin_transaction()
        try:
            if settling is None:
                self._sending.send(batches)
                return batches
            settled = [settling.settle(batch) for batch in batches]
            if is_careful:
                self._sending.send_carefully(settled, lessons)
            else:
                self._sending.send(settled)
            return settled
        except (KafkaException, NotFlushed) as error:
            self._abort()  # a record sent before has failed: nothing more is taken
            raise TransactionAborted(str(error)) from error

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
