"""One transaction: what it writes, its way to the broker, and the states it can be in."""

import time
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from enum import Enum
from typing import Final

import structlog
from confluent_kafka import KafkaException, TopicPartition

from proxy.dispatch.dispatcher import Dispatcher, asked_about
from proxy.dispatch.outgoing_records import OutgoingRecord, OutgoingRecords
from proxy.dispatch.refusals import Refusals, auxiliary_ref
from proxy.publishing.errors import (
    AbortUnfinished,
    GroupMoved,
    NotFlushed,
    PartitionsUnavailable,
    SessionLost,
    Throttled,
    TransactionAborted,
)
from proxy.publishing.kafka_transactions import KafkaTransactions, PendingCommit
from proxy.publishing.record_writer import RecordWriter
from proxy.publishing.targets import Targets
from proxy.publishing.tracked_sender import TrackedSender, judge_invalid
from proxy.scheduling.batch import Batch, ResolvedBatch

FRUITLESS_ABORTS: Final = 8
"""After so many in a row that taught nothing the session ends."""
GIVE_UP_AFTER_S: Final = 30.0
"""Then a new producer finds out what became of the transaction: a client can get stuck, and the
group gives the shards away after max.poll.interval.ms."""

log = structlog.get_logger(__name__)


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
        except KafkaException as error:
            self.state = State.UNKNOWN
            raise SessionLost(str(error)) from error

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
