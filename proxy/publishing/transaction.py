"""One transaction on the plain or the careful path, and the next attempt after a failure."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

import structlog
from confluent_kafka import KafkaException, TopicPartition

from proxy.dispatch.dispatcher import Dispatcher, OutgoingRecords
from proxy.dispatch.refusals import Refusals
from proxy.dispatch.release_control import ReleaseControl
from proxy.protocol.body import Delivery, need_dispatch
from proxy.protocol.policy import RetryGroup
from proxy.publishing.failures import (
    AbortUnfinished,
    GroupMoved,
    NotFlushed,
    PartitionsUnavailable,
    SessionLost,
    Throttled,
    TransactionAborted,
)
from proxy.publishing.kafka_transactions import KafkaTransactions, PendingCommit
from proxy.publishing.targets import Targets
from proxy.publishing.tracked_sender import TrackedSender, judge_invalid
from proxy.scheduling.batch import Batch, OutgoingRecord
from storage.store import Entry

log = structlog.get_logger(__name__)

FRUITLESS_ABORTS: Final = 8
"""The session ends after this many aborts in a row without a new fact."""
GIVE_UP_AFTER_S: Final = 30.0
"""The session ends after this time, because max.poll.interval.ms limits a transaction's time."""


@dataclass(slots=True)
class Publisher:
    """Publishes batches and offsets, one transaction at a time. `refusals` outlive the session."""

    kafka: KafkaTransactions
    targets: Targets
    records: OutgoingRecords
    retry: RetryGroup
    release: ReleaseControl
    refusals: Refusals
    last_topics: set[str] = field(default_factory=set)

    def publish(
        self,
        batches: Sequence[Batch[Entry]],
        offsets: Sequence[TopicPartition],
        group_metadata: object,
        now_ms: int,
    ) -> "Transaction":
        """Send one transaction. Call its `wait` before the next `publish`. Both raise SessionLost,
        and `wait` also GroupMoved or Throttled. After SessionLost drop all shards, because the
        result is unknown or this producer was fenced."""
        transaction = Transaction(self, batches, offsets, group_metadata, now_ms)
        self.last_topics = transaction.topics
        transaction.send()
        return transaction


class Transaction:
    """Makes one transaction, again and again while the broker aborts it. Call `send`, then `wait`.
    Both raise SessionLost, and `wait` also GroupMoved and Throttled."""

    def __init__(
        self,
        publisher: Publisher,
        batches: Sequence[Batch[Entry]],
        offsets: Sequence[TopicPartition],
        group_metadata: object,
        now_ms: int,
    ) -> None:
        self._by, self._kafka = publisher, publisher.kafka
        self._batches, self._now_ms = batches, now_ms
        self._offsets, self._group_metadata = offsets, group_metadata
        self.topics = {entry[2] for batch in batches for entry in batch.deliveries}
        self._asked, self._topics_before = self.topics, publisher.last_topics
        for batch in batches:
            if batch.auxiliary:
                own = batch.ingress.topic
                checks = {one.topic for one in batch.auxiliary if one.ref}
                self._asked = self._asked | checks - {own}
        self._care: Dispatcher | None = None
        """Decides on each record. None: the transaction is on the plain path."""
        self._resolved: list[Batch[Delivery]] = []
        self._started_s = time.monotonic()
        self._renew_producer: Callable[[], None] | None = None
        self._aborts = self._fruitless = 0
        self._written: Sequence[Batch[Any]] = ()
        self._commit: PendingCommit | None = None
        """None: the commit was not asked for, or the transaction was aborted."""
        self._given_up: Exception | None = None
        """Why no other attempt follows. After SessionLost only the broker knows the result."""
        self.committed_at_s = 0.0
        """Time of the broker's answer, by the monotonic clock. `wait` may return much later. 0: not
        committed."""

    def send(self) -> None:
        """Produce all records and ask for the commit, without waiting for it. The broker is asked
        about targets before, because its answers can take longer than a transaction may last."""
        while self._commit is None and self._given_up is None:
            self._look_up()
            try:
                if self._renew_producer:
                    self._renew_producer()
                    self._renew_producer = None
                self._kafka.begin(self._offsets, self._group_metadata)
                self._write()
                self._commit = self._kafka.commit(self._offsets, self._group_metadata)
            except Exception as error:  # noqa: BLE001 (raised again unless it is known)
                self._note_failure(error)

    def wait(self) -> Sequence[Batch[Any]]:
        """Wait for the commit. Return the batches as they were written."""
        while not self.committed_at_s:
            self.send()
            if self._commit is None:
                assert self._given_up is not None
                raise self._given_up
            try:
                self._kafka.wait_for(self._commit, self._finds_unavailable)
            except Exception as error:  # noqa: BLE001 (raised again unless it is known)
                self._commit = None
                self._note_failure(error)
            else:
                self.committed_at_s = self._commit.moved_at_s
                if self._care is not None:
                    self._forget_refusals()
        return self._written

    def _look_up(self) -> None:
        targets, refusals = self._by.targets, self._by.refusals
        if not targets.known.are_current(self._asked, self._now_ms):
            targets.learn(self._asked, self._now_ms)
        if self._care is None and (self._aborts or self._needs_care()):
            refusals.begin(self._now_ms)
            self._care = Dispatcher(
                targets.known, refusals, self._by.retry, self._by.release, self._now_ms
            )
        if (care := self._care) is not None:
            targets.learn_rules(refusals.limited)
            for topic in refusals.take_unlisted():
                self._kafka.renew_metadata(topic)
            self._resolved = [care.resolve(batch) for batch in self._batches]
            if targets.ask_again(care.doubted, self._now_ms):
                self._resolved = [care.resolve(batch) for batch in self._batches]

    def _needs_care(self) -> bool:
        """Return whether a record may need a decision, so that the careful path is needed."""
        refusals, release = self._by.refusals, self._by.release
        return (
            bool(refusals.refused or refusals.without_value or refusals.bare)
            or not self._by.targets.known.take_all(self.topics)
            or any(batch.auxiliary or need_dispatch(batch.deliveries) for batch in self._batches)
            or (release.has_rules and release.concerns(self.topics, self._batches, self._now_ms))
        )

    def _write(self) -> None:
        try:
            if self._care is None:
                self._write_plainly()
            else:
                self._write_carefully(self._care)
        except NotFlushed as error:
            if self._finds_unavailable():
                raise PartitionsUnavailable(str(error)) from error
            if self._kafka.is_throttled:
                raise AbortUnfinished(str(error)) from error
            self._kafka.abort()
            raise TransactionAborted(str(error)) from error
        except KafkaException as error:  # an earlier record has failed, so no more are accepted
            cause = self._kafka.cause_of(error.args[0], self._offsets, self._group_metadata)
            self._kafka.abort()
            raise TransactionAborted(cause.str(), cause.code()) from error

    def _write_plainly(self) -> None:
        """Produce deliveries that need no decision, without delivery reports."""
        self._written = self._batches
        for batch in self._batches:
            self._kafka.deliver(batch)
            if batch.dead_letters or batch.outcomes:
                for record in self._by.records.beside_deliveries(batch):
                    self._kafka.produce(record)

    def _write_carefully(self, care: Dispatcher) -> None:
        """Produce the resolved batches. Ask for delivery reports if an attempt was aborted, or if
        refusals or limits are known."""
        self._written = self._resolved
        kafka, records, known = self._kafka, self._by.records, self._by.targets.known
        tracked = TrackedSender(kafka.produce, kafka.flush, known, self._by.refusals)
        is_limited = not self.topics.isdisjoint(known.rules.keys() | known.tried.keys())
        is_tracked = self._aborts > 0 or is_limited or self._by.refusals.are_known
        send: Callable[[OutgoingRecord], None] = tracked.send if is_tracked else kafka.produce
        for batch in self._resolved:
            beside = records.beside_deliveries(batch, care.is_letter_refused)
            for record in chain(records.deliveries(batch), beside):
                send(record)
        tracked.end()

    def _finds_unavailable(self) -> bool:
        """Return whether partitions that this transaction waits for are unavailable. Include the
        partitions of the previous transaction, which must end first."""
        ingress = {batch.ingress.topic for batch in self._batches}
        suspected = self._asked | self._topics_before | ingress | self._by.records.own_topics
        return self._by.targets.find_unavailable(suspected, self._now_ms)

    def _forget_refusals(self) -> None:
        refusals = self._by.refusals
        for batch in self._resolved if refusals.are_known else ():
            ended = [one.offset for one in batch.deliveries]
            ended += [hop.delivery.offset for hop in batch.hops]
            ended += [letter.offset for letter in batch.dead_letters]
            refusals.forget((batch.ingress.prefix, offset) for offset in ended)
        for planned in self._batches:
            refusals.forget(one.ref for one in planned.auxiliary if one.ref)

    def _learn(self, aborted: Exception) -> int:
        """Return the number of records that gave a new fact for the next attempt."""
        targets, refusals, learnt = self._by.targets, self._by.refusals, 0
        limited: set[str] = set()
        if self._care is not None:
            were_untimely = set(targets.known.untimely)
            if isinstance(aborted, TransactionAborted):
                judge_invalid(refusals.reports, aborted)
            learnt, limited = refusals.learn(targets.known), refusals.limited
            for topic in targets.known.untimely.keys() - were_untimely:
                log.warning(
                    "the broker rejects the time of records: they are sent again until it "
                    "accepts them",
                    topic=topic,
                    why=targets.known.untimely[topic].detail,
                )
        targets.forget(self.topics | limited)
        return learnt

    def _note_failure(self, error: Exception) -> None:
        """Prepare the next attempt after `error`, or give up. Raises SessionLost, and errors that
        are not Kafka's."""
        if isinstance(error, TransactionAborted):
            self._note_abort(error, self._learn(error))
        elif isinstance(error, PartitionsUnavailable):
            self._renew_producer = self._kafka.replace_producer
            self._note_abort(error, learnt=1)
        elif isinstance(error, AbortUnfinished):
            self._note_unfinished(error, self._learn(error))
        elif isinstance(error, GroupMoved):
            self._given_up = error
        else:
            # The client library may raise SystemError. The fatal error is then its cause.
            cause = error.__cause__ if isinstance(error, SystemError) else error
            if isinstance(cause, KafkaException):
                self._given_up = SessionLost(str(cause))
                raise self._given_up from error
            self._given_up = error
            raise error

    def _note_unfinished(self, unfinished: AbortUnfinished, learnt: int) -> None:
        """Let another producer abort the transaction, because this one may wait for minutes."""
        if self._kafka.is_throttled:
            self._kafka.fence_producer()
            self._given_up = Throttled(str(unfinished))
        else:
            self._renew_producer = self._kafka.fence_producer
            self._note_abort(unfinished, learnt)

    def _note_abort(self, aborted: Exception, learnt: int) -> None:
        self._aborts += 1
        log.warning(
            "transaction aborted", error=str(aborted), attempt=self._aborts, records_learnt=learnt
        )
        self._fruitless = 0 if learnt else self._fruitless + 1
        lasted_s = time.monotonic() - self._started_s
        if self._fruitless >= FRUITLESS_ABORTS or lasted_s >= GIVE_UP_AFTER_S:
            why = f"a transaction failed {self._aborts} times, the last time: {aborted}"
            self._given_up = SessionLost(why)
            raise self._given_up from aborted
