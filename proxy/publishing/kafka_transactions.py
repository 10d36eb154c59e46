"""A producer's records and transactional calls. Failed calls raise the errors of `failures`."""

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, Final

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from proxy.kafka.access import refuse_beyond_limit
from proxy.protocol.body import BY_KEY, unpacked
from proxy.protocol.headers import DUE, ORIGIN, PREFIX
from proxy.publishing.failures import (
    AbortUnfinished,
    ClientStuck,
    GroupMoved,
    NotFlushed,
    PartitionsUnavailable,
    SessionLost,
    TransactionAborted,
)
from proxy.publishing.throttling import Throttling
from proxy.scheduling.batch import Batch, OutgoingRecord
from storage.store import Entry

log = structlog.get_logger(__name__)


class CommitThread(Executor):
    """A thread that waits for commits, and does not keep the process alive. A call of the client
    library may never return. Executors of the standard library would wait for such a call at the
    end of the process."""

    def __init__(self) -> None:
        self._work: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="commits", daemon=True)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if self._thread.ident is None:
            self._thread.start()
        future: Future[Any] = Future()
        self._work.put((future, partial(fn, *args, **kwargs)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002
        """End the thread after the queued calls, without waiting for it."""
        self._work.put(None)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            future, call = work
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001 (raised where the result is asked for)
                future.set_exception(error)
            del work, future, call


UNPACKED_AT_ONCE: Final = 128
QUEUE_FULL_WAIT_S: Final = 0.1
METADATA_TIMEOUT_S: Final = 2.0
CALL_TIMEOUT_S: Final = 10.0
LOOK_EVERY_S: Final = 0.5
SLOW_AFTER_S: Final = 1.0
DOUBLED_AT_MOST: Final = 3
DOUBLED_FOR_S: Final = 60.0
"""Each producer replaced in this time doubles SLOW_AFTER_S, because the broker may just be slow."""
FLUSH_SLICE_S: Final = 0.25
ABORT_CALLS: Final = 20
"""At most this many abort calls share CALL_TIMEOUT_S. Each call purges the records still queued."""
BUSY_PAUSE_S: Final = 0.02
STUCK_AFTER_S: Final = 2.0
"""A call that has not returned this long after its time-out never returns."""
WRITTEN_WITHIN: Final = 0.4
SENT_WITHIN: Final = 0.7
"""Records must be produced, and must arrive, within these shares of transaction.timeout.ms."""
CAUSE_TIMEOUT_S: Final = 1.0
TRANSACTIONAL_IDS: Final = 8
"""A replaced producer keeps its id busy until the partitions of its transaction are available. The
ids have different coordinators, because an unfinished transaction can block all other transactions
of its coordinator for the broker's request.timeout.ms (30 s)."""

OTHER_GENERATION: Final = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.FENCED_INSTANCE_ID,
    }
)
"""FENCED_INSTANCE_ID is included, because a static member that rejoins fences its earlier self. If
another process took the member's place, the consumer learns this at its next fetch."""


class PendingCommit:
    """A commit that was started. It can be given up only until the broker is asked to commit."""

    def __init__(self, until_s: float = math.inf) -> None:
        self.result: Future[None]
        self.until_s = until_s
        self.moved_at_s = time.monotonic()
        self.is_claimed = False
        self._lock = Lock()

    def claim(self) -> bool:
        """Return whether the caller is first. Only the first caller may commit or give up."""
        with self._lock:
            is_first, self.is_claimed = not self.is_claimed, True
            return is_first


class KafkaTransactions:
    """One transaction at a time, of one producer. `replace_producer` changes the producer.

    `new_producer` takes the number of a transactional id. The new producer fences every other
    producer with this id, and ends their open transactions. `timeout_s` is transaction.timeout.ms.
    Records get the time of `record_time_ms`: a broker may refuse the time of a wrong local clock.
    """

    def __init__(
        self,
        new_producer: Callable[[int], Producer],
        new_commits: Callable[[], Executor],
        heartbeat: Callable[[], None],
        timeout_s: float,
        throttling: Throttling,
        record_time_ms: Callable[[], int],
    ) -> None:
        self._new_producer, self._new_commits = new_producer, new_commits
        self._heartbeat, self._timeout_s = heartbeat, timeout_s
        self._record_time_ms = record_time_ms
        self._throttling, self._has_sent_offsets = throttling, False
        self._watched_s = throttling.now_s()
        self._sent_until_s = self._write_until_s = math.inf
        self._time_ms = self._id_number = 0
        self._replaced_at_s: deque[float] = deque(maxlen=DOUBLED_AT_MOST)
        self._open()

    def begin(self, offsets: Sequence[TopicPartition], group_metadata: object) -> None:
        """Begin a transaction. Raises like `wait_for`. If the broker throttles, send the offsets
        now, because offsets sent later would wait for the records on the same connection."""
        self.producer.begin_transaction()
        throttling, now_s = self._throttling, time.monotonic()
        self._watched_s, self._time_ms = throttling.now_s(), self._record_time_ms()
        self._write_until_s = now_s + WRITTEN_WITHIN * self._timeout_s
        self._sent_until_s = now_s + SENT_WITHIN * self._timeout_s
        self._has_sent_offsets = throttling.until_s > 0 and throttling.is_recent
        if self._has_sent_offsets:
            self._send_offsets(self.producer, PendingCommit(), list(offsets), group_metadata)

    def deliver(self, batch: Batch[Entry]) -> None:
        """Stamp and produce deliveries without delivery reports. Entries are unpacked just before
        they are produced, so that the CPU's caches have their bytes. Arguments by name would make
        `produce` a quarter slower."""
        prefix, produce, time_ms = batch.ingress.prefix, self.producer.produce, self._time_ms
        for start in range(0, len(batch.deliveries), UNPACKED_AT_ONCE):
            part = batch.deliveries[start : start + UNPACKED_AT_ONCE]
            for (due_ms, offset, target, _), kept in zip(part, unpacked(part), strict=True):
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
        """Produce one record. Raises NotFlushed if there is no room for too long. `on_delivery` is
        passed as `callback`, because the client library ignores a positional `on_delivery`."""
        topic, value, key, partition, headers, _ref, _is_dead_letter = record
        named: Any = headers
        while True:
            try:
                return self.producer.produce(
                    topic, value, key, partition, on_delivery, None, self._time_ms, named
                )
            except BufferError:
                if time.monotonic() > self._write_until_s:
                    raise NotFlushed("the client library has no room for more records") from None
                self.producer.poll(QUEUE_FULL_WAIT_S)
                self._heartbeat()

    def flush(self, timeout_s: float) -> int:
        left_s = self._write_until_s - time.monotonic()
        return self.producer.flush(max(0.0, min(timeout_s, left_s)))

    def renew_metadata(self, topic: str) -> None:
        """Let the producer ask for the topic's partitions. It does so itself every 5 minutes."""
        with suppress(KafkaException):
            self.producer.list_topics(topic, METADATA_TIMEOUT_S)
        self._heartbeat()

    def commit(self, offsets: Sequence[TopicPartition], group_metadata: object) -> PendingCommit:
        """Ask for the commit of the produced records and of `offsets`, without waiting for it."""
        pending = PendingCommit(self._sent_until_s)
        unsent = [] if self._has_sent_offsets else list(offsets)
        pending.result = self._commits.submit(
            self._commit, self.producer, pending, unsent, group_metadata
        )
        return pending

    @property
    def is_throttled(self) -> bool:
        """Whether a quota has held up the last transaction."""
        return self._throttling.has_held_up_since(self._watched_s)

    def wait_for(self, pending: PendingCommit, finds_unavailable: Callable[[], bool]) -> None:
        """Return once `pending` is committed. Without progress, ask `finds_unavailable`. Raises
        PartitionsUnavailable, TransactionAborted, AbortUnfinished, GroupMoved, SessionLost if the
        result stays unknown, ClientStuck if the client library ignores its time-out."""
        while True:
            try:
                return pending.result.result(LOOK_EVERY_S)
            except TimeoutError:
                self._heartbeat()
                now_s = time.monotonic()
                replaced = sum(at_s > now_s - DOUBLED_FOR_S for at_s in self._replaced_at_s)
                stands_s, patience_s = now_s - pending.moved_at_s, SLOW_AFTER_S * 2**replaced
                is_slow = stands_s >= patience_s and not pending.is_claimed
                if is_slow and finds_unavailable() and pending.claim():
                    raise PartitionsUnavailable("produced records do not arrive") from None
                if stands_s > CALL_TIMEOUT_S + STUCK_AFTER_S:
                    raise ClientStuck(stands_s) from None

    def cause_of(
        self, error: KafkaError, offsets: Sequence[TopicPartition], group_metadata: object
    ) -> KafkaError:
        """Return why the open transaction takes no further record. `produce` does not say why, but
        other calls do."""
        if error.code() == KafkaError._STATE:  # noqa: SLF001
            try:
                self.producer.send_offsets_to_transaction(
                    list(offsets), group_metadata, CAUSE_TIMEOUT_S
                )
            except KafkaException as raised:
                return raised.args[0]  # type: ignore[no-any-return]
        return error

    def abort(self) -> None:
        """Abort, and serve the delivery reports. Raises AbortUnfinished or SessionLost."""
        _abort(self.producer)

    def replace_producer(self) -> None:
        """Go on with another producer and id. The transaction is aborted in the background. Two
        producers are no danger (docs/exactly-once.md#why-two-workers-cannot-both-fire)."""
        self._commits.submit(_leave, self.producer)
        self._commits.shutdown()
        self._replaced_at_s.append(time.monotonic())
        self._id_number = (self._id_number + 1) % TRANSACTIONAL_IDS
        self._open()

    def fence_producer(self) -> None:
        """Go on with a new producer of the same id, which aborts the old producer's transaction."""
        self.close()
        self._open()

    def close(self) -> None:
        """Give up the producer and its open transaction. The producer's own `close` would abort and
        flush first, and may wait for an absent broker."""
        self._commits.shutdown()
        self.producer.purge(blocking=False)
        del self.producer

    def _open(self) -> None:
        """Make a producer. Skip transactional ids that an unfinished transaction holds."""
        for _ in range(TRANSACTIONAL_IDS):
            self.producer, self._commits = self._new_producer(self._id_number), self._new_commits()
            try:
                return self.producer.init_transactions(CALL_TIMEOUT_S)
            except KafkaException as raised:
                error: KafkaError = raised.args[0]
                refuse_beyond_limit(error)
                if error.code() != KafkaError.CONCURRENT_TRANSACTIONS:
                    raise SessionLost(error.str()) from raised
                log.warning("transactional id busy", number=self._id_number, why=error.str())
                self._heartbeat()
                self._id_number = (self._id_number + 1) % TRANSACTIONAL_IDS
        raise SessionLost("all transactional ids are held by transactions that do not end")

    def _commit(
        self,
        producer: Producer,
        pending: PendingCommit,
        offsets: list[TopicPartition],
        group_metadata: object,
    ) -> None:
        """Commit, in the thread of the commits. `offsets` is empty if they were sent before."""
        if offsets:
            self._send_offsets(producer, pending, offsets, group_metadata)
        least_left = math.inf
        while left := producer.flush(FLUSH_SLICE_S):
            if left < least_left:
                least_left, pending.moved_at_s = left, time.monotonic()
            now_s = time.monotonic()
            has_waited = now_s > min(pending.moved_at_s + CALL_TIMEOUT_S, pending.until_s)
            if pending.is_claimed or (has_waited and pending.claim()):
                raise AbortUnfinished(f"{left} records do not arrive in time")
        if pending.claim():
            _call(producer, pending, producer.commit_transaction)
            pending.moved_at_s = time.monotonic()
            producer.poll(0)  # serves throttle_cb for the last answers

    def _send_offsets(
        self,
        producer: Producer,
        pending: PendingCommit,
        offsets: list[TopicPartition],
        group_metadata: object,
    ) -> None:
        """Send the offsets. Raises AbortUnfinished if throttled, as no commit was asked for yet."""
        try:
            _call(producer, pending, producer.send_offsets_to_transaction, offsets, group_metadata)
        except SessionLost as lost:
            producer.poll(0)
            if self.is_throttled:
                raise AbortUnfinished(f"offsets are held up: {lost}") from lost
            raise


def _call(
    producer: Producer, pending: PendingCommit, call: Callable[..., None], *args: object
) -> None:
    """Make one call. Repeat it while the broker writes the end of the last transaction. With
    hundreds of partitions this write takes longer than the client library waits."""
    pending.moved_at_s = time.monotonic()
    until_s = pending.moved_at_s + CALL_TIMEOUT_S
    while True:
        try:
            return call(*args, CALL_TIMEOUT_S)
        except KafkaException as raised:
            error: KafkaError = raised.args[0]
            is_busy = error.code() == KafkaError.CONCURRENT_TRANSACTIONS and error.retriable()
            if not is_busy or time.monotonic() > until_s or pending.is_claimed:
                raise _failure(producer, pending, error) from raised
        time.sleep(BUSY_PAUSE_S)


def _failure(producer: Producer, pending: PendingCommit, error: KafkaError) -> Exception:
    """Abort if that is possible, and return the error. Otherwise the result is unknown
    (docs/exactly-once.md, rule 6). Do not repeat the call after a time-out, because a repeated call
    can wait for ever (librdkafka 2.16: send_offsets_to_transaction, after a broker was killed)."""
    if not error.txn_requires_abort():
        return SessionLost(error.str())
    pending.moved_at_s = time.monotonic()
    _abort(producer)
    if error.code() in OTHER_GENERATION:
        return GroupMoved(error.str())
    return TransactionAborted(error.str(), error.code())


def _abort(producer: Producer) -> None:
    """Abort a transaction whose commit was not asked for, or was refused.

    The transaction is not committed, even after a time-out. librdkafka (2.16) purges its queues
    first. Then it queues the records after a refused record again, but never sends them. The next
    call purges them. Raises AbortUnfinished if a record stays ("skipped sequence numbers").
    """
    error: KafkaError
    for _ in range(ABORT_CALLS):
        try:
            return producer.abort_transaction(CALL_TIMEOUT_S / ABORT_CALLS)
        except KafkaException as raised:
            error = raised.args[0]
            if error.code() != KafkaError._TIMED_OUT or not error.retriable():
                raise SessionLost(f"abort failed: {error.str()}") from raised
    raise AbortUnfinished(error.str())


def _leave(producer: Producer) -> None:
    with suppress(SessionLost, AbortUnfinished):
        _abort(producer)
    producer.purge(blocking=False)
