"""One transaction: what it writes, its way to the broker, and the states it can be in."""

import time
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Executor
from contextlib import contextmanager
from enum import Enum
from functools import partial
from typing import Final

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from proxy.dispatch.dispatcher import Dispatcher, asked_about
from proxy.dispatch.known_targets import (
    IN_COMPANY_BYTES,
    RECORD_BATCH_BYTES,
    UNTIMELY,
    KnownTargets,
    record_batch_bytes,
)
from proxy.dispatch.outgoing_records import OutgoingRecord, OutgoingRecords
from proxy.dispatch.refusals import INVALID, RecordRef, Refusals, Report, auxiliary_ref
from proxy.dispatch.release_control import ReleaseControl
from proxy.protocol.outcomes import Rejection
from proxy.protocol.policy import RetryGroup
from proxy.protocol.proofs import HopAuthenticator
from proxy.publishing.kafka_transactions import (
    AbortUnfinished,
    GroupMoved,
    KafkaTransactions,
    NotFlushed,
    PartitionsUnavailable,
    PendingCommit,
    SessionLost,
    Throttled,
    TransactionAborted,
)
from proxy.publishing.record_writer import RecordWriter
from proxy.publishing.targets import Targets
from proxy.publishing.throttling import Throttling
from proxy.scheduling.batch import Batch, ResolvedBatch

log = structlog.get_logger(__name__)


# Sends records so that each refusal is known and touches no other record.

FLUSH_TIMEOUT_S: Final = 2.0
REFUSAL_CODES: Final = {
    KafkaError.MSG_SIZE_TOO_LARGE: "too-large",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "not-authorised",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "target-unknown",
    KafkaError.TOPIC_EXCEPTION: "target-illegal",
    KafkaError._UNKNOWN_TOPIC: "target-unknown",
    KafkaError._UNKNOWN_PARTITION: "partition-bad",
    KafkaError.INVALID_MSG: INVALID,
    KafkaError.RECORD_LIST_TOO_LARGE: "too-large",
    KafkaError.INVALID_RECORD: INVALID,
    KafkaError.POLICY_VIOLATION: INVALID,
    KafkaError.INVALID_TIMESTAMP: INVALID,
}
"""A record meets these again each time; all others are the broker's or the network's."""
RAISED_CODES: Final = {
    KafkaError.MSG_SIZE_TOO_LARGE: "too-large",
    KafkaError._UNKNOWN_PARTITION: "partition-unavailable",
}
"""The client library refuses a record by itself, as it is produced: without a delivery report, and
without any harm to the transaction."""


class TrackedSender:
    """Sends with a delivery report per record, once through a transaction's records.

    `produce` is `RecordWriter.produce`, `flush` waits for what was produced. In topics of which
    `targets` knows a limit record batches are ended before they grow too large. What the refusals
    want alone gets a record batch of its own.
    """

    def __init__(
        self,
        produce: Callable[..., None],
        flush: Callable[[float], int],
        targets: KnownTargets,
        refusals: Refusals,
    ) -> None:
        self._produce, self._flush_producer = produce, flush
        self._targets, self._refusals = targets, refusals
        self._filled_bytes: dict[str, int] = {}
        self._raised: KafkaException | None = None

    def send(self, record: OutgoingRecord) -> None:
        """Produce one record; a refusal is reported under its `ref`.

        Raises KafkaException or NotFlushed when the transaction cannot go on.
        """
        if record.ref is None:
            self._produce(record)
            return
        size_bytes = record_batch_bytes(record.key, record.value, record.headers)
        limit_bytes = self._targets.batch_limit_bytes(record.topic)
        is_alone = (record.topic, record.ref) in self._refusals.alone
        fills_bytes = size_bytes + IN_COMPANY_BYTES
        was_alone = is_alone or (limit_bytes is not None and fills_bytes > limit_bytes)
        if is_alone or not self._fits(record.topic, fills_bytes, limit_bytes):
            self._flush()
        on_delivery = partial(_report, self._refusals.reports, record, size_bytes, was_alone)
        try:
            self._produce(record, on_delivery)
        except KafkaException as raised:
            self._note_raised(record, record.ref, size_bytes, raised)
        if is_alone:
            self._flush()

    def end(self) -> None:
        """Raises KafkaException when a record was not taken by the client library.

        The transaction would be committed without it.
        """
        if self._raised is not None:
            raise self._raised

    def _note_raised(
        self, record: OutgoingRecord, ref: RecordRef, size_bytes: int, raised: KafkaException
    ) -> None:
        """Go on, so that all such records are found at once, where this one alone is at fault.

        A partition may be unknown because the client library has not asked for a while.
        """
        error: KafkaError = raised.args[0]
        code = RAISED_CODES.get(error.code())
        is_partition = error.code() == KafkaError._UNKNOWN_PARTITION
        if is_partition and self._refusals.is_to_be_listed(record.topic):
            self._raised = raised
            return
        if code is None or (is_partition and record.topic not in self._targets.partitions):
            raise raised
        self._raised = raised
        what = f"{record.topic}/{record.partition}" if is_partition else "kafka: message.max.bytes"
        why = f"the proxy's own client does not send it: {error.str()} ({what})"
        self._refusals.reports[ref] = Report(
            Rejection(code, why), record.topic, record.is_dead_letter, size_bytes, was_alone=True
        )

    def _fits(self, topic: str, fills_bytes: int, limit_bytes: int | None) -> bool:
        """Whether it still fits into a record batch with what was sent there since the flush.

        It is counted by topic, as if all went into one partition. What does not fit though it is
        the first is alone: nothing fits behind it.
        """
        if limit_bytes is None:
            return True
        grown_bytes = fills_bytes - RECORD_BATCH_BYTES
        filled_bytes = self._filled_bytes.get(topic, RECORD_BATCH_BYTES)
        fits = filled_bytes + grown_bytes <= limit_bytes
        before_bytes = filled_bytes if fits else RECORD_BATCH_BYTES
        self._filled_bytes[topic] = grown_bytes + before_bytes
        return fits

    def _flush(self) -> None:
        left = self._flush_producer(FLUSH_TIMEOUT_S)
        if left:
            raise NotFlushed(f"{left} records not sent after {FLUSH_TIMEOUT_S:g} s")


def judge_invalid(reports: dict[RecordRef, Report], aborted: TransactionAborted) -> None:
    """Tell records that are invalid from those whose time the broker refuses.

    A report calls both invalid; only the error of the transaction tells them apart. That error is
    of one record batch, so it counts for the topic of this batch alone. What is known of other
    topics is dropped: the next attempt shows it again.
    """
    invalid = {ref: one for ref, one in reports.items() if one.rejection.code == INVALID}
    topics = list(dict.fromkeys(one.topic for one in invalid.values()))
    if aborted.code == KafkaError.INVALID_TIMESTAMP:
        refused = Rejection(UNTIMELY, f"{aborted}: compare the clocks (kafka-delay-proxy check)")
        reports |= {ref: one._replace(rejection=refused) for ref, one in invalid.items()}
        return
    at_fault = next((t for t in topics if f"ProduceRequest for {t} [" in str(aborted)), None)
    for ref, one in invalid.items():
        if one.topic != (at_fault or topics[0]):
            del reports[ref]


def _report(
    reports: dict[RecordRef, Report],
    record: OutgoingRecord,
    size_bytes: int,
    was_alone: bool,
    error: KafkaError | None,
    _: Message,
) -> None:
    """Called by the client library once the broker has taken the record, or has not.

    `reports` are those of the attempt: a producer that was left behind may call this later.
    """
    code = None if error is None else REFUSAL_CODES.get(error.code())
    if error is not None and code is not None and record.ref is not None:
        rejection = Rejection(code, f"the broker refused the record: {error.str()}")
        reports[record.ref] = Report(
            rejection, record.topic, record.is_dead_letter, size_bytes, was_alone
        )


# One transaction: what it writes, its way to the broker, and the states it can be in.

FRUITLESS_ABORTS: Final = 8
"""After so many in a row that taught nothing the session ends."""
GIVE_UP_AFTER_S: Final = 30.0
"""Then a new producer finds out what became of the transaction: a client can get stuck, and the
group gives the shards away after max.poll.interval.ms."""


class TransactionContents:
    """Writes the batches of one transaction, as often as it is made.

    First without delivery reports, which cost more than the records: so the first abort teaches
    nothing of its records. Made again, with them, each record that the broker refuses is known and
    can end as a dead letter, and the others are not held up. `also_suspected`: topics beside those
    of the batches whose partitions may be why the transaction gets nowhere.
    """

    def __init__(
        self,
        batches: Sequence[Batch],
        targets: Targets,
        writer: RecordWriter,
        dispatcher: Dispatcher,
        records: OutgoingRecords,
        refusals: Refusals,
        also_suspected: AbstractSet[str],
    ) -> None:
        self._batches = batches
        self._targets, self._writer = targets, writer
        self._dispatcher, self._records, self._refusals = dispatcher, records, refusals
        self._also_suspected = also_suspected
        self.topics = {entry[2] for batch in batches for entry in batch.deliveries}
        self._is_tracked = False
        self._resolved: list[ResolvedBatch] | None = None

    def look_up(self, now_ms: int, *, is_again: bool) -> None:
        """Ask the broker about topics of which nothing is known, or too little; decide on records.

        All of that is done before the transaction begins: it may take as long as the transaction
        may last.
        """
        self._targets.learn(asked_about(self.topics, self._batches), now_ms)
        self._targets.learn_rules(self._refusals.limited)
        for topic in self._refusals.take_unlisted():
            self._writer.renew_metadata(topic)
        known = self._targets.known
        is_limited = not self.topics.isdisjoint(known.rules.keys() | known.tried.keys())
        self._is_tracked = is_again or is_limited or self._refusals.are_known
        self._resolved = None
        if self._is_tracked or self._dispatcher.is_needed(self.topics, self._batches):
            self._resolved = [self._dispatcher.resolve(batch) for batch in self._batches]
            if self._targets.ask_again(self._dispatcher.doubted, now_ms):
                self._resolved = [self._dispatcher.resolve(batch) for batch in self._batches]

    def find_unavailable(self, now_ms: int) -> bool:
        """Ask which partitions cannot be written to now; whether these may be what it waits for.

        The last transaction counts, too: this one begins when that has ended in all partitions.
        """
        own = {batch.ingress.topic for batch in self._batches}
        suspected = asked_about(self.topics, self._batches) | self._also_suspected | own
        return self._targets.find_unavailable(suspected, now_ms)

    def write(self) -> Sequence[Batch | ResolvedBatch]:
        """Produce everything into the open transaction; gives the batches as they were written.

        Raises KafkaException or NotFlushed when the transaction cannot go on.
        """
        self._writer.begin()
        return self._write_as_planned() if self._resolved is None else self._write_resolved()

    def learn(self, aborted: Exception) -> int:
        """After an abort: how many records have taught something for the next time."""
        known = self._targets.known
        were_untimely = set(known.untimely)
        if isinstance(aborted, TransactionAborted):
            judge_invalid(self._refusals.reports, aborted)
        learnt = self._refusals.learn(known)
        for topic in known.untimely.keys() - were_untimely:
            log.warning(
                "the broker refuses the time of records: they are tried again until it does not",
                topic=topic,
                why=known.untimely[topic].detail,
            )
        self._targets.forget(self.topics | self._refusals.limited)
        return learnt

    def committed(self) -> None:
        """Its records have ended: nothing needs to be remembered of them."""
        for batch in self._resolved or ():
            prefix = batch.ingress.prefix
            ended = [one.offset for one in batch.deliveries]
            ended += [hop.delivery.offset for hop in batch.hops]
            ended += [letter.offset for letter in batch.dead_letters]
            self._refusals.committed((prefix, offset) for offset in ended)
        for planned in self._batches:
            refs = (auxiliary_ref(planned.ingress, one) for one in planned.auxiliary)
            self._refusals.committed(refs)

    def _write_as_planned(self) -> Sequence[Batch]:
        for batch in self._batches:
            self._writer.deliver(batch)
            for record in self._records.beside_deliveries(batch):
                self._writer.produce(record)
        return self._batches

    def _write_resolved(self) -> Sequence[ResolvedBatch]:
        assert self._resolved is not None
        writer = self._writer
        tracked = TrackedSender(writer.produce, writer.flush, self._targets.known, self._refusals)
        send: Callable[[OutgoingRecord], None] = (
            tracked.send if self._is_tracked else writer.produce
        )
        for batch in self._resolved:
            for record in self._records.deliveries(batch):
                send(record)
            for record in self._records.beside_deliveries(batch):
                send(record)
        tracked.end()
        return self._resolved


class State(Enum):
    """PLANNED -> COMMITTING -> COMMITTED; aborted, it is PLANNED again while that is of use."""

    PLANNED = "planned"
    """Nothing of it is at the broker, or what was has been aborted: it may be made (again)."""
    COMMITTING = "committing"
    """Everything is produced, and the broker has been asked to commit."""
    COMMITTED = "committed"
    """The broker has all of it: memory may follow."""
    GROUP_MOVED = "group-moved"
    """Aborted, and the group has moved on: the shards still owned must be planned anew."""
    THROTTLED = "throttled"
    """Aborted, and too large for what the broker lets through: to be planned anew, smaller."""
    UNKNOWN = "unknown"
    """Only the broker knows what became of it: the session ends."""


class Transaction:
    """Makes one transaction, again and again while the broker aborts it.

    `send` first, then `wait`: the caller may do other work between the two. Both raise SessionLost
    (it is UNKNOWN), `wait` also GroupMoved or Throttled (its states, too).
    """

    def __init__(
        self,
        kafka: KafkaTransactions,
        contents: TransactionContents,
        offsets: Sequence[TopicPartition],
        group_metadata: object,
        now_ms: int,
    ) -> None:
        self.state = State.PLANNED
        self._kafka, self._contents, self._now_ms = kafka, contents, now_ms
        self._offsets, self._group_metadata = offsets, group_metadata
        self._started_s = time.monotonic()
        self._renew_producer: Callable[[], None] | None = None
        self._aborts = self._fruitless = 0
        self._written: Sequence[Batch | ResolvedBatch] = ()
        self._commit: PendingCommit
        self._given_up: GroupMoved | Throttled | None = None

    def send(self) -> None:
        """Produce everything and ask for the commit, without waiting for it."""
        while self.state is State.PLANNED:
            self._contents.look_up(self._now_ms, is_again=self._aborts > 0)
            with self._followed():
                if self._renew_producer:
                    self._renew_producer()
                    self._renew_producer = None
                self._kafka.begin(self._offsets, self._group_metadata)
                self._write()
                self._commit = self._kafka.commit(self._offsets, self._group_metadata)
                self.state = State.COMMITTING

    def wait(self) -> Sequence[Batch | ResolvedBatch]:
        """Return once it is committed: the batches as they were written."""
        assert self.state is not State.UNKNOWN, self.state
        while self.state is not State.COMMITTED:
            self.send()
            if self._given_up is not None:
                raise self._given_up
            with self._followed():
                self._kafka.wait_for(self._commit, self._finds_unavailable)
                self.state = State.COMMITTED
                self._contents.committed()
        return self._written

    def _write(self) -> None:
        try:
            self._written = self._contents.write()
        except NotFlushed as error:
            if self._finds_unavailable():
                raise PartitionsUnavailable(str(error)) from error
            if self._kafka.is_throttled:
                raise AbortUnfinished(str(error)) from error
            self._kafka.abort()
            raise TransactionAborted(str(error)) from error
        except KafkaException as error:  # a record sent before has failed: nothing more is taken
            cause = self._kafka.cause_of(error.args[0], self._offsets, self._group_metadata)
            self._kafka.abort()
            raise TransactionAborted(cause.str(), cause.code()) from error

    def _finds_unavailable(self) -> bool:
        return self._contents.find_unavailable(self._now_ms)

    @property
    def committed_at_s(self) -> float:
        """When the broker said that it is committed, by the monotonic clock. The caller may have
        waited for it much later."""
        return self._commit.moved_at_s

    @contextmanager
    def _followed(self) -> Iterator[None]:
        """Keeps `state` true whatever is raised within; only SessionLost is raised further."""
        try:
            yield
        except TransactionAborted as aborted:
            self._note_abort(aborted, self._contents.learn(aborted))
        except PartitionsUnavailable as unavailable:
            self._renew_producer = self._kafka.replace_producer
            self._note_abort(unavailable, learnt=1)
        except AbortUnfinished as unfinished:
            learnt = self._contents.learn(unfinished)
            if self._kafka.is_throttled:
                self._give_up_throttled(unfinished)
            else:
                self._renew_producer = self._kafka.fence_producer
                self._note_abort(unfinished, learnt)
        except GroupMoved as moved:
            self.state, self._given_up = State.GROUP_MOVED, moved
        except SessionLost:
            self.state = State.UNKNOWN
            raise
        except (KafkaException, SystemError) as error:
            # A fatal error that meets a delivery report comes out of the client library so.
            cause = error.__cause__ if isinstance(error, SystemError) else error
            if not isinstance(cause, KafkaException):
                raise
            self.state = State.UNKNOWN
            raise SessionLost(str(cause)) from error

    def _give_up_throttled(self, unfinished: AbortUnfinished) -> None:
        """Another producer aborts it: this one may wait for minutes."""
        self.state = State.UNKNOWN
        self._kafka.fence_producer()
        self.state, self._given_up = State.THROTTLED, Throttled(str(unfinished))

    def _note_abort(self, aborted: Exception, learnt: int) -> None:
        self.state = State.PLANNED
        self._aborts += 1
        log.warning(
            "transaction aborted", error=str(aborted), attempt=self._aborts, records_learnt=learnt
        )
        self._fruitless = 0 if learnt else self._fruitless + 1
        lasted_s = time.monotonic() - self._started_s
        if self._fruitless >= FRUITLESS_ABORTS or lasted_s >= GIVE_UP_AFTER_S:
            self.state = State.UNKNOWN
            raise SessionLost(
                f"a transaction failed {self._aborts} times, at last: {aborted}"
            ) from aborted


# Publishes batches with their offsets, each time in one transaction: all of it or nothing.


class Publisher:
    """Makes transactions of a transactional producer, one at a time.

    `heartbeat` is called while waiting for the broker, so that waiting is not taken for hanging.
    `new_producer`, `new_commits` and `timeout_s` are as `KafkaTransactions` takes them. `retry`
    says when what could not be published is tried again, `release` what is held back though it
    could be; `authenticator` signs what goes to the ingress; `stamp_ms` gives the time that records
    carry; `refusals` and `throttling` are the worker's.
    """

    def __init__(
        self,
        new_producer: Callable[[int], Producer],
        targets: Targets,
        dead_letter_topic: str,
        outcome_topic: str,
        heartbeat: Callable[[], None],
        new_commits: Callable[[], Executor],
        retry: RetryGroup,
        release: ReleaseControl,
        authenticator: HopAuthenticator,
        stamp_ms: Callable[[], int],
        timeout_s: float,
        refusals: Refusals,
        throttling: Throttling | None = None,
    ) -> None:
        self._targets, self._retry, self._release = targets, retry, release
        self._refusals = refusals
        self._authenticator = authenticator
        self._dead_letter_topic, self._outcome_topic = dead_letter_topic, outcome_topic
        self._kafka = KafkaTransactions(
            new_producer, new_commits, heartbeat, timeout_s, throttling or Throttling()
        )
        self._writer = RecordWriter(self._kafka, heartbeat, stamp_ms)
        self._last_topics: set[str] = set()

    def publish(
        self,
        batches: Sequence[Batch],
        offsets: Sequence[TopicPartition],
        group_metadata: object,
        now_ms: int,
    ) -> Transaction:
        """One transaction of all of it, on its way: what cannot be delivered ends otherwise.

        Wait for it before the next one: that raises GroupMoved when the group no longer takes the
        offsets of `group_metadata`'s generation, Throttled when the broker does not let it through
        in time. Raises SessionLost when the outcome is not known or this producer has been fenced:
        memory is not to be trusted over the broker.
        """
        known, refusals = self._targets.known, self._refusals
        refusals.begin(now_ms)
        contents = TransactionContents(
            batches,
            self._targets,
            self._writer,
            Dispatcher(known, refusals, self._retry, self._release, now_ms),
            OutgoingRecords(
                self._dead_letter_topic, self._outcome_topic, known, refusals, self._authenticator
            ),
            refusals,
            self._last_topics | {self._dead_letter_topic, self._outcome_topic},
        )
        self._last_topics = contents.topics
        transaction = Transaction(self._kafka, contents, offsets, group_metadata, now_ms)
        transaction.send()
        return transaction

    def close(self) -> None:
        """Give the producer up with all it has in hand; the broker keeps what is committed."""
        self._kafka.close()
