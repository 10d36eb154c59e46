"""One transaction: its records, on the plain or the careful path, and its states."""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from enum import Enum
from functools import partial
from itertools import chain
from typing import Any, Final

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from proxy.dispatch.dispatcher import Dispatcher, OutgoingRecords
from proxy.dispatch.known_targets import (
    IN_COMPANY_BYTES,
    RECORD_BATCH_BYTES,
    UNTIMELY,
    KnownTargets,
    record_batch_bytes,
)
from proxy.dispatch.refusals import INVALID, Refusals, Report
from proxy.dispatch.release_control import ReleaseControl
from proxy.protocol.body import BY_KEY, Kept, need_dispatch, unpacked
from proxy.protocol.headers import DUE, ORIGIN, PREFIX
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
from proxy.publishing.targets import Targets
from proxy.publishing.throttling import Throttling
from proxy.scheduling.batch import Batch, OutgoingRecord, RecordRef
from storage.store import Entry

log = structlog.get_logger(__name__)


# The plain path: deliveries that need no decision, without delivery reports.

UNPACKED_AT_ONCE: Final = 128
QUEUE_FULL_WAIT_S: Final = 0.1
METADATA_TIMEOUT_S: Final = 2.0


class RecordWriter:
    """Hands records to the client library, within the open transaction. Nothing else produces.
    Records carry the time of `stamp_ms`: a broker refuses the time of a wrong wall clock."""

    def __init__(
        self, kafka: KafkaTransactions, heartbeat: Callable[[], None], stamp_ms: Callable[[], int]
    ) -> None:
        self._kafka, self._heartbeat, self._stamp_ms = kafka, heartbeat, stamp_ms
        self._time_ms = 0

    def begin(self) -> None:
        """Give all records of one transaction the same time."""
        self._time_ms = self._stamp_ms()

    def deliver(self, batch: Batch) -> None:
        """Stamp and produce deliveries. Arguments by name make `produce` a quarter slower."""
        prefix, produce = batch.ingress.prefix, self._kafka.producer.produce
        time_ms = self._time_ms
        for (due_ms, offset, target, _), kept in _contents(batch.deliveries):
            partition, key, value, headers = kept
            stamped: Any = [(ORIGIN, f"{prefix}{offset}"), (DUE, f"{due_ms}")]
            if headers is None or isinstance(headers, bytes):
                partition = BY_KEY
            else:
                stamped = [header for header in headers if header[0][:6] != PREFIX] + stamped
            try:
                produce(target, value, key, partition, None, None, time_ms, stamped)
            except BufferError:
                self.produce(OutgoingRecord(target, value, key, partition, stamped))

    def produce(
        self,
        record: OutgoingRecord,
        on_delivery: Callable[[KafkaError | None, Message], None] | None = None,
    ) -> None:
        """Produce one record. Raises NotFlushed if there is no room for too long. The report is
        passed as `callback`: the client library ignores `on_delivery` behind that."""
        topic, value, key, partition, headers, _ref, _is_dead_letter = record
        producer, time_ms = self._kafka.producer, self._time_ms
        while True:
            try:
                return producer.produce(
                    topic,
                    value,
                    key,
                    partition,
                    on_delivery,
                    None,
                    time_ms,
                    headers,  # type: ignore[arg-type]
                )
            except BufferError:
                if time.monotonic() > self._kafka.write_until_s:
                    raise NotFlushed("the client library has no room for more records") from None
                producer.poll(QUEUE_FULL_WAIT_S)
                self._heartbeat()

    def flush(self, timeout_s: float) -> int:
        left_s = self._kafka.write_until_s - time.monotonic()
        return self._kafka.producer.flush(max(0.0, min(timeout_s, left_s)))

    def renew_metadata(self, topic: str) -> None:
        """Let the producer ask for the topic's partitions, which it does every 5 minutes itself."""
        with suppress(KafkaException):
            self._kafka.producer.list_topics(topic, METADATA_TIMEOUT_S)
        self._heartbeat()


def _contents(entries: Sequence[Entry]) -> Iterator[tuple[Entry, Kept]]:
    """Unpack entries just before they are produced, while their bytes are in the caches."""
    for start in range(0, len(entries), UNPACKED_AT_ONCE):
        part = entries[start : start + UNPACKED_AT_ONCE]
        yield from zip(part, unpacked(part), strict=True)


# The careful path: each refusal is known, and affects no other record.

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
"""Errors that a record meets each time. All others are the broker's or the network's."""
RAISED_CODES: Final = {
    KafkaError.MSG_SIZE_TOO_LARGE: "too-large",
    KafkaError._UNKNOWN_PARTITION: "partition-unavailable",
}
"""Refusals by the client library itself, as a record is produced: without a delivery report."""


class TrackedSender:
    """Sends the records of one transaction attempt with a delivery report each. Record batches end
    before a known limit of the topic. Records in `refusals.alone` get their own."""

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
        """Produce one record. Its refusal is reported under its `ref`. Raises KafkaException or
        NotFlushed if the transaction cannot go on."""
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
        """Raise KafkaException if the client library did not take a record."""
        if self._raised is not None:
            raise self._raised

    def _note_raised(
        self, record: OutgoingRecord, ref: RecordRef, size_bytes: int, raised: KafkaException
    ) -> None:
        """Go on if only this record is at fault, so that all such records are found at once. A
        partition may be unknown because the client library has not asked for a while."""
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
        """Return whether it fits into the record batch, as if the topic had one partition."""
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


def _report(
    reports: dict[RecordRef, Report],
    record: OutgoingRecord,
    size_bytes: int,
    was_alone: bool,
    error: KafkaError | None,
    _: Message,
) -> None:
    """Take a report into the attempt's `reports`: a producer left behind may report late."""
    code = None if error is None else REFUSAL_CODES.get(error.code())
    if error is not None and code is not None and record.ref is not None:
        rejection = Rejection(code, f"the broker refused the record: {error.str()}")
        reports[record.ref] = Report(
            rejection, record.topic, record.is_dead_letter, size_bytes, was_alone
        )


def judge_invalid(reports: dict[RecordRef, Report], aborted: TransactionAborted) -> None:
    """Tell invalid records from records whose time the broker refuses. Reports call both invalid.
    Only the transaction's error tells them apart, for one record batch. Reports of other topics are
    dropped, and the next attempt shows them again."""
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


FRUITLESS_ABORTS: Final = 8
"""The session ends after this many aborts in a row without a new fact."""
GIVE_UP_AFTER_S: Final = 30.0
"""After this time a new producer finds out the result: max.poll.interval.ms limits the wait."""


class State(Enum):
    """PLANNED -> COMMITTING -> COMMITTED. An aborted one is PLANNED again while that is of use."""

    PLANNED = "planned"
    """The broker has nothing, or has aborted it: it may be made (again)."""
    COMMITTING = "committing"
    """Everything is produced, and the broker has been asked to commit."""
    COMMITTED = "committed"
    """The broker has everything: memory may follow."""
    GROUP_MOVED = "group-moved"
    """Aborted, and the group has moved on: plan the shards still owned anew."""
    THROTTLED = "throttled"
    """Aborted, and too large for a broker that throttles: plan anew, smaller."""
    UNKNOWN = "unknown"
    """Only the broker knows how it ended: the session ends."""


class Transaction:
    """Makes one transaction, again and again while the broker aborts it. Call `send`, then `wait`.
    Both raise SessionLost, `wait` also GroupMoved and Throttled."""

    def __init__(
        self,
        publisher: "Publisher",
        batches: Sequence[Batch],
        offsets: Sequence[TopicPartition],
        group_metadata: object,
        now_ms: int,
    ) -> None:
        self.state = State.PLANNED
        self._by, self._kafka = publisher, publisher.kafka
        self._batches, self._now_ms = batches, now_ms
        self._offsets, self._group_metadata = offsets, group_metadata
        self.topics = {entry[2] for batch in batches for entry in batch.deliveries}
        self._topics_before = publisher.last_topics
        self._care: Dispatcher | None = None
        """Decides on each record. None: the transaction is on the plain path."""
        self._resolved: list[Batch] = []
        self._started_s = time.monotonic()
        self._renew_producer: Callable[[], None] | None = None
        self._aborts = self._fruitless = 0
        self._written: Sequence[Batch] = ()
        self._commit: PendingCommit
        self._given_up: GroupMoved | Throttled | None = None

    @property
    def committed_at_s(self) -> float:
        """Time of the broker's answer, by the monotonic clock. `wait` may return much later."""
        return self._commit.moved_at_s

    def send(self) -> None:
        """Produce everything and ask for the commit, without waiting for it. Brokers are asked
        about targets before: that can outlast a transaction."""
        while self.state is State.PLANNED:
            self._look_up()
            try:
                if self._renew_producer:
                    self._renew_producer()
                    self._renew_producer = None
                self._kafka.begin(self._offsets, self._group_metadata)
                self._write()
                self._commit = self._kafka.commit(self._offsets, self._group_metadata)
                self.state = State.COMMITTING
            except Exception as error:  # noqa: BLE001 (raised again unless it is known)
                self._note_failure(error)

    def wait(self) -> Sequence[Batch]:
        """Return the batches as they were written, once they are committed."""
        assert self.state is not State.UNKNOWN, self.state
        while self.state is not State.COMMITTED:
            self.send()
            if self._given_up is not None:
                raise self._given_up
            try:
                self._kafka.wait_for(self._commit, self._finds_unavailable)
                self.state = State.COMMITTED
                if self._care is not None:
                    self._forget_refusals()
            except Exception as error:  # noqa: BLE001 (raised again unless it is known)
                self._note_failure(error)
        return self._written

    def _look_up(self) -> None:
        targets = self._by.targets
        targets.learn(_asked_about(self.topics, self._batches), self._now_ms)
        if self._care is None and (self._aborts or self._needs_care()):
            self._care = self._by.take_care(self._now_ms)
        if (care := self._care) is not None:
            targets.learn_rules(self._by.refusals.limited)
            for topic in self._by.refusals.take_unlisted():
                self._by.writer.renew_metadata(topic)
            self._resolved = [care.resolve(batch) for batch in self._batches]
            if targets.ask_again(care.doubted, self._now_ms):
                self._resolved = [care.resolve(batch) for batch in self._batches]

    def _needs_care(self) -> bool:
        """Return whether a record may be more than a delivery by key to a topic that takes it."""
        refusals, release = self._by.refusals, self._by.release
        are_refused = refusals.refused or refusals.without_value or refusals.bare
        return (
            bool(are_refused)
            or not self._by.targets.take_all(self.topics)
            or any(batch.auxiliary or need_dispatch(batch.deliveries) for batch in self._batches)
            or (release.has_rules and release.concerns(self.topics, self._batches, self._now_ms))
        )

    def _write(self) -> None:
        try:
            self._by.writer.begin()
            self._written = self._batches if self._care is None else self._resolved
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
        except KafkaException as error:  # a record sent before has failed: nothing more is taken
            cause = self._kafka.cause_of(error.args[0], self._offsets, self._group_metadata)
            self._kafka.abort()
            raise TransactionAborted(cause.str(), cause.code()) from error

    def _write_plainly(self) -> None:
        writer = self._by.writer
        for batch in self._batches:
            writer.deliver(batch)
            if batch.dead_letters or batch.outcomes:
                for record in self._by.records.beside_deliveries(batch):
                    writer.produce(record)

    def _write_carefully(self, care: Dispatcher) -> None:
        """Produce the resolved batches. The first attempt has no reports unless refusals are
        known."""
        writer, records, known = self._by.writer, self._by.records, self._by.targets.known
        tracked = TrackedSender(writer.produce, writer.flush, known, self._by.refusals)
        is_limited = not self.topics.isdisjoint(known.rules.keys() | known.tried.keys())
        is_tracked = self._aborts > 0 or is_limited or self._by.refusals.are_known
        send: Callable[[OutgoingRecord], None] = tracked.send if is_tracked else writer.produce
        for batch in self._resolved:
            beside = records.beside_deliveries(batch, care.is_letter_refused)
            for record in chain(records.deliveries(batch), beside):
                send(record)
        tracked.end()

    def _finds_unavailable(self) -> bool:
        """Return whether there are partitions that cannot be written to, and may be waited for. The
        last transaction counts, too: this one begins when that has ended in all partitions."""
        own = {batch.ingress.topic for batch in self._batches}
        suspected = _asked_about(self.topics, self._batches) | self._topics_before | own
        return self._by.targets.find_unavailable(
            suspected | self._by.records.own_topics, self._now_ms
        )

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
                    "the broker refuses the time of records: they are tried again until it does "
                    "not",
                    topic=topic,
                    why=targets.known.untimely[topic].detail,
                )
        targets.forget(self.topics | limited)
        return learnt

    def _note_failure(self, error: Exception) -> None:
        """Keep `state` true after `error`. Raise SessionLost, and errors that are not Kafka's."""
        if isinstance(error, TransactionAborted):
            self._note_abort(error, self._learn(error))
        elif isinstance(error, PartitionsUnavailable):
            self._renew_producer = self._kafka.replace_producer
            self._note_abort(error, learnt=1)
        elif isinstance(error, AbortUnfinished):
            self._note_unfinished(error, self._learn(error))
        elif isinstance(error, GroupMoved):
            self.state, self._given_up = State.GROUP_MOVED, error
        elif isinstance(error, SessionLost):
            self.state = State.UNKNOWN
            raise error
        else:
            # The client library raises this for a fatal error that meets a delivery report.
            cause = error.__cause__ if isinstance(error, SystemError) else error
            if not isinstance(cause, KafkaException):
                raise error
            self.state = State.UNKNOWN
            raise SessionLost(str(cause)) from error

    def _note_unfinished(self, unfinished: AbortUnfinished, learnt: int) -> None:
        """Let another producer abort it. This one may wait for minutes."""
        if not self._kafka.is_throttled:
            self._renew_producer = self._kafka.fence_producer
            self._note_abort(unfinished, learnt)
            return
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


def _asked_about(topics: set[str], batches: Sequence[Batch]) -> set[str]:
    for batch in batches:
        if batch.auxiliary:
            own = batch.ingress.topic
            topics = topics | {one.topic for one in batch.auxiliary if one.ref} - {own}
    return topics


class Publisher:
    """Publishes batches and offsets with one transactional producer, one transaction at a time.
    `refusals` and `throttling` outlive the session."""

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
        self.targets, self.release, self.refusals = targets, release, refusals
        self.kafka = KafkaTransactions(
            new_producer, new_commits, heartbeat, timeout_s, throttling or Throttling()
        )
        self.writer = RecordWriter(self.kafka, heartbeat, stamp_ms)
        self.records = OutgoingRecords(dead_letter_topic, outcome_topic, authenticator)
        self.last_topics: set[str] = set()
        self._retry = retry

    def take_care(self, now_ms: int) -> Dispatcher:
        self.refusals.begin(now_ms)
        return Dispatcher(self.targets.known, self.refusals, self._retry, self.release, now_ms)

    def publish(
        self,
        batches: Sequence[Batch],
        offsets: Sequence[TopicPartition],
        group_metadata: object,
        now_ms: int,
    ) -> Transaction:
        """Send one transaction. Wait for it before the next one. Waiting raises GroupMoved,
        Throttled, or SessionLost: the result is unknown or this producer was fenced, so memory is
        not trusted."""
        transaction = Transaction(self, batches, offsets, group_metadata, now_ms)
        self.last_topics = transaction.topics
        transaction.send()
        return transaction

    def close(self) -> None:
        """Give up the producer and its open transaction. The broker keeps committed ones."""
        self.kafka.close()
