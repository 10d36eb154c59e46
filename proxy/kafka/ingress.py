"""The ingress as a worker reads it: joined, fetched, read on where it ended."""

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from operator import lt
from typing import Any, Final, Protocol, cast

import structlog
from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from proxy.kafka.access import REFUSALS, refuse_beyond_limit
from proxy.kafka.unreadable import (
    FailingFetch,
    FailingFetches,
    SkippedRanges,
    Skipping,
    UnreadableMessage,
)
from proxy.protocol.body import Message
from proxy.protocol.headers import read_headers

log = structlog.get_logger(__name__)


# Fetches partitions again that were paused.


def resume_at(consumer: Consumer, places: Sequence[TopicPartition]) -> None:
    """Go on at these offsets, where each of them is read on anyway.

    Where all partitions of a broker were paused, librdkafka's thread for it sleeps for up to a
    second before it looks at them again (seen with 2.16.0). To seek wakes it. One that cannot be
    sought, since it is not owned any more or has no leader, is resumed all the same.
    """
    consumer.resume(list(places))
    for place in places:
        if place.offset >= 0:
            with suppress(KafkaException):
                consumer.seek(place)


# Where each partition is read on, so that no record is taken twice.
#
# The client library gives records in order, and each once. Where it pauses partitions of itself,
# for a rebalance, while a batch is being taken from it, it has gone back to before that batch, by
# all signs (librdkafka 4686 was of the same kind).


class ReadPositions:
    """The offset to be read next of each partition that is owned."""

    def __init__(self) -> None:
        self._next: dict[int, int] = {}
        self._read_to: dict[int, int] = {}
        """Of partitions that are read again: below it lies a record, which has to come first."""

    @property
    def offsets(self) -> Mapping[int, int]:
        """By partition, those that are owned."""
        return self._next

    def begin(self, starts: Mapping[int, int]) -> None:
        """These partitions are read from these offsets on."""
        self._next.update(starts)

    def rewind(self, starts: Mapping[int, int]) -> None:
        """These partitions are read again from these offsets on."""
        again = {p: self._next[p] for p, at in starts.items() if at < self._next[p]}
        self._read_to.update(again)
        self._next.update(starts)

    def end(self, partitions: Iterable[int]) -> None:
        """These are read no more."""
        for partition in partitions:
            self._next.pop(partition, None)
            self._read_to.pop(partition, None)

    def reach(self, partition: int, end_offset: int) -> None:
        """Below it lies nothing that is not read: aborted records at most."""
        if partition in self._read_to:
            raise _skipped(partition, self._next[partition], end_offset)
        if partition in self._next:
            self._next[partition] = max(self._next[partition], end_offset)

    def fresh(self, partition: int, records: list[Message]) -> list[Message]:
        """The records, of one partition, without those that were given before."""
        next_offset = self._next.get(partition)
        if next_offset is None:
            return records
        offsets = [record.offset() for record in records]
        if offsets[0] < next_offset or not _is_rising(offsets):
            records = _left(partition, records, next_offset)
            offsets = [record.offset() for record in records]
        if offsets:
            if offsets[0] >= self._read_to.pop(partition, offsets[0] + 1):
                raise _skipped(partition, next_offset, offsets[0])
            self._next[partition] = offsets[-1] + 1
        return records


def _skipped(partition: int, wanted: int, given: int) -> KafkaException:
    why = f"partition {partition} was to be read again from {wanted} on, and came from {given} on"
    return KafkaException(KafkaError(KafkaError._INCONSISTENT, why))  # noqa: SLF001


def _is_rising(offsets: Sequence[int]) -> bool:
    return all(map(lt, offsets, offsets[1:]))


def _left(partition: int, records: Sequence[Message], next_offset: int) -> list[Message]:
    left: list[Message] = []
    at = next_offset
    for record in records:
        if record.offset() >= at:
            left.append(record)
            at = record.offset() + 1
    log.warning(
        "the client library gave records again: left out",
        partition=partition,
        count=len(records) - len(left),
        first=min(record.offset() for record in records),
        next_offset=next_offset,
    )
    return left


# Waits for the next record with few requests, where none has come for a while.
#
# The group's consumer asks a hundred times a second, so that many records come with each answer.
# It cannot be told to ask less often: meanwhile its partitions are paused, and another consumer
# asks, whose answers the broker holds until there is something, or half a second is over. A
# transaction that was aborted is something, too: the partition ends behind it.
#
# A pause throws away what the group's consumer is fetching. One batch may take seconds to fetch
# or to unpack. So it is paused only at the ends of its partitions, once it has said that it is
# there.

QUIET_S: Final = 2.0
LONGEST_S: Final = 30.0
MOMENT_S: Final = 0.25
"""After so long the group's consumer fetches again for a moment: its connections stay in use, the
ends of partitions are known, and whatever keeps the other consumer from hearing lasts no longer."""


class LongPoll:
    """Waits in the place of `consumer`, of which it pauses what nobody else has paused.

    `new_listener` makes the consumer that asks instead. An error of it counts as something that has
    come: the group's consumer says what is wrong, if it meets it, too.
    """

    def __init__(
        self,
        consumer: Consumer,
        new_listener: Callable[[], Consumer],
        topic: str,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._consumer, self._new_listener = consumer, new_listener
        self._topic, self._now_s = topic, now_s
        self._made: Consumer | None = None
        self._paused: Sequence[TopicPartition] = ()
        self._offsets: Mapping[int, int] = {}
        self._ends: dict[int, int] = {}
        """Where the group's consumer has come to an end, by partition, since it was resumed."""
        self._next_s = now_s() + QUIET_S
        """When it may begin, or, once it has, when it is to end."""

    def heard(self) -> None:
        """Records have come: only after a while without any is it worth its while again."""
        self._next_s = self._now_s() + QUIET_S

    def reached(self, ends: Mapping[int, int]) -> None:
        """The group's consumer has come to these ends of partitions."""
        self._ends.update(ends)

    def wait(
        self, wait_s: float, next_offsets: Callable[[], Mapping[int, int]], *, is_idle: bool
    ) -> float:
        """Wait for a record at or beyond the offsets, by partition, or for an end beyond them; how
        much of the time is left to wait for the consumer. It begins with that only when `is_idle`
        and the consumer has come to the end of each partition.
        """
        began_s = self._now_s()
        if not self._paused and is_idle and began_s >= self._next_s:
            self._begin(next_offsets())
        if not self._paused:
            return wait_s
        if self._hears(began_s + wait_s):
            self.end()
            return max(0.0, wait_s - (self._now_s() - began_s))
        if began_s >= self._next_s:
            self.end()
            self._next_s = began_s + MOMENT_S
        return 0.0

    def end(self) -> None:
        """The consumer fetches again. To be called before partitions come, go, or are paused."""
        if self._paused:
            self._listener.unassign()
            resume_at(self._consumer, self._paused)
            self._paused = ()
            self._ends.clear()
            self.heard()

    def close(self) -> None:
        """Give the other consumer up."""
        if self._made is not None:
            self._made.close()
        self._made, self._paused = None, ()

    def _hears(self, until_s: float) -> bool:
        """Until then: that a partition ends where it is read on is nothing new."""
        while True:
            message = cast(Message | None, self._listener.poll(max(0.0, until_s - self._now_s())))
            if message is None:
                return False
            error = cast(KafkaError | None, message.error())
            is_end = error is not None and error.code() == KafkaError._PARTITION_EOF
            if not is_end or message.offset() > self._offsets.get(message.partition(), -1):
                return True

    def _begin(self, offsets: Mapping[int, int]) -> None:
        if any(self._ends.get(partition) != at for partition, at in offsets.items()):
            return
        places = [TopicPartition(self._topic, p, at) for p, at in offsets.items()]
        if places:
            self._consumer.pause(places)
            self._paused, self._offsets = places, dict(offsets)
            self._listener.assign(places)
        self._next_s = self._now_s() + LONGEST_S

    @property
    def _listener(self) -> Consumer:
        if self._made is None:
            self._made = self._new_listener()
        return self._made


# Fetches ingress records, and tells who owns which partition from which offset on.
#
# The consumer reads committed records only, never commits by itself, and is a static member of a
# cooperative-sticky group: a restart within the session time-out moves no partition.

FETCH_RECORDS: Final = 2_000
ASK_TIMEOUT_S: Final = 5.0
STABLE_WITHIN_S: Final = 60.0
"""How long a predecessor's open transaction may hide the committed offset."""
SUSPECT_AFTER_S: Final = 30.0
HANGING: Final = (
    "either the broker is away, or a transaction that committed offsets never ends: "
    "docs/operations/runbook.md says how to find and abort it"
)

NOT_IN_THE_LOG: Final = KafkaError._AUTO_OFFSET_RESET  # noqa: SLF001
THE_END: Final = frozenset(
    {KafkaError._FATAL, KafkaError.FENCED_INSTANCE_ID, NOT_IN_THE_LOG, *REFUSALS}
)
"""Nothing more comes after these, though the error of a message does not say that it is fatal.

A member can fence itself when the broker restarts: only when it happens again and again is it
another process (`proxy.worker.worker`). What is to be read next and is not in the log any
more was deleted or cut off: recovery says which offsets (`proxy.recovery.recovery`). Of a right
that is missing the worker says which one."""


class Owner(Protocol):
    """Is called from within `fetch` as the group assigns, revokes, or loses partitions."""

    def take_over(self, partitions: list[int]) -> dict[int, int]:
        """Give the offset from which to read each of the newly assigned partitions."""

    def hand_over(self, partitions: list[int]) -> None:
        """These go to another worker: finish with them."""

    def lose(self, partitions: list[int]) -> None:
        """These went without asking: another worker may have them already."""


@dataclass(slots=True)
class Fetched:
    """Records and ends of partitions, by partition; `append_ms` is the broker's newest stamp."""

    records: defaultdict[int, list[Message]] = field(default_factory=lambda: defaultdict(list))
    ends: dict[int, int] = field(default_factory=dict)
    append_ms: int = -1

    def add(self, messages: Iterable[Message]) -> list[Message]:
        """Sort records in behind those of their partition; gives back what is an error instead."""
        records, errors = self.records, []
        for message in messages:
            if message.error() is not None:
                errors.append(message)
                continue
            try:
                read_headers(message)
            except SystemError:
                message = UnreadableMessage(message)  # noqa: PLW2901
            records[message.partition()].append(message)
        return errors

    def note_append_time(self) -> None:
        """Take the broker's clock from the newest records, where it stamps them itself."""
        for bucket in self.records.values():
            kind, timestamp_ms = bucket[-1].timestamp()
            if kind == TIMESTAMP_LOG_APPEND_TIME:
                self.append_ms = max(self.append_ms, timestamp_ms)


class Ingress:
    """The consumer of the ingress topic. All calls come from one thread. `new_listener` makes the
    consumer that waits in its place while nothing comes (`LongPoll`). `skipped` is followed."""

    def __init__(
        self,
        consumer: Consumer,
        topic: str,
        new_listener: Callable[[], Consumer],
        now_s: Callable[[], float] = time.monotonic,
        skipped: SkippedRanges | None = None,
    ) -> None:
        self._consumer, self._now_s = consumer, now_s
        self._long_poll = LongPoll(consumer, new_listener, topic, now_s)
        self._positions = ReadPositions()
        self._failing, self._skipping = FailingFetches(), Skipping(skipped or SkippedRanges())
        self._held: set[int] = set()
        self._group_metadata: object = None
        self.topic = topic

    def join(self, owner: Owner, joined: Callable[[str], None] | None = None) -> None:
        """Join the group; `owner` is called from `fetch` as partitions come and go, `joined` with
        the member id."""

        def on_assign(_: Consumer, assigned: list[TopicPartition]) -> None:
            self.group_moved()
            self._long_poll.end()
            if joined is not None:
                joined(self._consumer.memberid() or "")
            offsets = owner.take_over([p.partition for p in assigned])
            self._positions.begin(offsets)
            starts = [TopicPartition(self.topic, p, at) for p, at in offsets.items()]
            self._consumer.incremental_assign(starts)

        def on_revoke(_: Consumer, revoked: list[TopicPartition]) -> None:
            self._long_poll.end()
            owner.hand_over([p.partition for p in revoked])
            self.group_moved()
            self._end(revoked)
            self._consumer.incremental_unassign(revoked)

        def on_lost(_: Consumer, lost: list[TopicPartition]) -> None:
            self._long_poll.end()
            owner.lose([p.partition for p in lost])
            self._end(lost)
            self._consumer.incremental_unassign(lost)

        self._consumer.subscribe(
            [self.topic], on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost
        )

    def fetch(
        self,
        wait_s: float,
        most: int = FETCH_RECORDS,
        *,
        is_busy: bool = False,
        is_idle: bool = False,
    ) -> Fetched:
        """What has arrived, at most so many records (one more where the first is waited for): wait
        for a first one, or, when busy, gather for the whole time. is_idle: whoever asks has nothing
        to do until then, and no end of a partition to wait for."""
        fetched = Fetched()
        if self._skippable():
            is_idle, wait_s = False, 0.0
        wait_s = self._long_poll.wait(wait_s, self._wanted, is_idle=is_idle)
        arrived = self._gather(most, wait_s) if is_busy else self._wait_for_first(most, wait_s)
        if arrived:
            for message in fetched.add(cast(list[Message], arrived)):
                self._note_error(message, fetched)
            self._leave_out_skipped(fetched)
            fetched.note_append_time()
            if fetched.records:
                self._long_poll.heard()
            self._failing.passed([*fetched.records, *fetched.ends])
            for partition, records in fetched.records.items():
                fetched.records[partition] = self._positions.fresh(partition, records)
            for partition, end in fetched.ends.items():
                self._positions.reach(partition, end)
            self._long_poll.reached(fetched.ends)
        self._skip(fetched, most)
        return fetched

    def committed(self, partitions: Iterable[int]) -> list[TopicPartition]:
        """Committed offsets with metadata, waiting out a predecessor's open transaction."""
        asked = [TopicPartition(self.topic, p) for p in partitions]
        started = time.monotonic()
        while True:
            try:
                answers = self._consumer.committed(asked, ASK_TIMEOUT_S)
                errors = [a.error for a in answers if a.error is not None]
                if not errors:
                    return answers
                raise KafkaException(errors[0])
            except KafkaException as raised:
                waited_s = time.monotonic() - started
                if waited_s > STABLE_WITHIN_S:
                    raise
                if waited_s < SUSPECT_AFTER_S:
                    log.info("waiting for committed offsets", error=raised.args[0].str())
                else:
                    log.warning(
                        "waiting for committed offsets", error=raised.args[0].str(), hint=HANGING
                    )

    def stuck(self) -> Mapping[int, FailingFetch]:
        """The partitions of which nothing more can be read, and where."""
        self._failing.expire(self._fetched(), self._now_s())
        return self._failing.stuck

    def newest(self, partition: int) -> int:
        """High watermark as of the last fetch; no request is made. -1 before the first."""
        place = TopicPartition(self.topic, partition)
        _low, high = self._consumer.get_watermark_offsets(place, cached=True)
        return high

    def pause(self, partitions: Collection[int]) -> None:
        self._long_poll.end()
        self._held.update(partitions)
        self._consumer.pause([TopicPartition(self.topic, p) for p in partitions])

    def resume(self, partitions: Collection[int]) -> None:
        self._long_poll.end()
        self._held.difference_update(partitions)
        next_offsets = self._positions.offsets
        places = [TopicPartition(self.topic, p, next_offsets.get(p, -1)) for p in partitions]
        resume_at(self._consumer, places)

    def rewind(self, offsets: Mapping[int, int]) -> None:
        """Read these partitions again, each from an offset at or below what was read.

        Raises KafkaException where the client library does not go back.
        """
        self._long_poll.end()
        self._positions.rewind(offsets)
        for partition, offset in offsets.items():
            self._skipping.forget(partition)  # it would go on behind records that are read again
            self._consumer.seek(TopicPartition(self.topic, partition, offset))

    def offset(self, partition: int, next_offset: int, metadata: str) -> TopicPartition:
        """An offset to commit, with what belongs to it."""
        return TopicPartition(self.topic, partition, next_offset, metadata)

    def group_metadata(self) -> object:
        """Fences a worker that the group has given up (KIP-447).

        Kept until partitions come or go, or `group_moved`: a thread of the client has to be asked.
        One that is too old is refused by the broker, never taken for a newer one.
        """
        if self._group_metadata is None:
            self._group_metadata = self._consumer.consumer_group_metadata()
        return self._group_metadata

    def group_moved(self) -> None:
        """The group may be in another generation: the next transaction asks for it."""
        self._group_metadata = None

    def close(self) -> None:
        """Hand over what is owned, then leave. A static member is missed after its time-out."""
        self._long_poll.close()
        self._consumer.close()

    def _wanted(self) -> dict[int, int]:
        """Where the partitions that can be read are read on."""
        offsets, left_out = self._positions.offsets.items(), self._held | self._failing.stuck.keys()
        return {partition: at for partition, at in offsets if partition not in left_out}

    def _fetched(self) -> Collection[int]:
        """The partitions that are owned and not held."""
        return self._positions.offsets.keys() - self._held

    def _end(self, places: Iterable[TopicPartition]) -> None:
        """These are read no more."""
        partitions = [place.partition for place in places]
        self._positions.end(partitions)
        self._failing.passed(partitions)
        for partition in partitions:
            self._skipping.forget(partition)

    def _skippable(self) -> list[int]:
        """Partitions of which skipped records are to be handed out."""
        fetched = self._fetched() if self._skipping.met else ()
        return [partition for partition in self._skipping.met if partition in fetched]

    def _leave_out_skipped(self, fetched: Fetched) -> None:
        """What lies in a skipped range, or behind one that is being skipped, does not count."""
        for partition, records in list(fetched.records.items()):
            self._meets_skipped(partition, records[0].offset(), records[-1].offset())
            if kept := self._skipping.before(partition, records):
                fetched.records[partition] = kept
            else:
                del fetched.records[partition]
        for partition in self._skipping.met:
            fetched.ends.pop(partition, None)

    def _meets_skipped(self, partition: int, first: int, last: int) -> bool:
        """Whether reading has come to a skipped range with one of these offsets."""
        is_owned = partition in self._positions.offsets
        return is_owned and self._skipping.meet(partition, first, last)

    def _skip(self, fetched: Fetched, most: int) -> None:
        """Hand out records in place of those skipped, and fetch from their end on."""
        for partition in self._skippable():
            next_offset = self._positions.offsets[partition]
            records, fetch_from = self._skipping.records(partition, next_offset, most)
            if records:
                fresh = self._positions.fresh(partition, cast(list[Message], records))
                fetched.records[partition] += fresh
            if fetch_from is not None:
                self._failing.passed([partition])
                resume_at(self._consumer, [TopicPartition(self.topic, partition, fetch_from)])

    def _gather(self, most: int, wait_s: float) -> list[Any]:
        """`consume` waits its whole time-out unless the batch is full."""
        return self._consumer.consume(most, wait_s)

    def _wait_for_first(self, most: int, wait_s: float) -> list[Any]:
        first = self._consumer.poll(wait_s)
        return [] if first is None else [first, *self._consumer.consume(most, 0)]

    def _note_error(self, message: Message, fetched: Fetched) -> None:
        error = cast(KafkaError, message.error())
        if error.code() == KafkaError._PARTITION_EOF:
            fetched.ends[message.partition()] = message.offset()
            return
        refuse_beyond_limit(error)
        if error.fatal() or error.code() in THE_END:
            raise KafkaException(error)
        partition, offset = message.partition(), cast(int | None, message.offset())
        if offset is None or partition not in self._positions.offsets:
            log.warning("ingress not readable for now", error=error.str())
        elif not self._meets_skipped(partition, offset, offset):
            self._failing.failed(partition, offset, error.str(), self._now_s())
