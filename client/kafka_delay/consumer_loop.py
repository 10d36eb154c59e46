"""The loop of a retry consumer: poll, hand out records, note their ends, commit."""

import logging
import time
from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Final, TypeAlias

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from kafka_delay.commits import Backlog, GroupMoved, NoAnswer, Settlement, commit
from kafka_delay.errors import ClientError
from kafka_delay.handlers import HandlerTimedOut, Handling
from kafka_delay.kafka import Partition, Place, UnreadableHeaders, place_of
from kafka_delay.request import Request
from kafka_delay.retries import (
    Believed,
    Failure,
    FailureRules,
    LocalRetries,
    NotBelieved,
    Received,
    received,
)
from kafka_delay.topics import TopicWatch

POLL_S: Final = 0.5
LOOK_EVERY_S: Final = 0.02
"""Interval of polls while handlers are at work."""
POLL_AT_LEAST_EVERY_S: Final = 1.0
SETTLE_EVERY_S: Final = 1.0
TOPICS_EVERY_S: Final = 5.0
"""Interval of checks for recreated topics. Before commits: SETTLE_EVERY_S."""
FINISH_WITHIN_S: Final = 10.0
"""Limit for the last commit without a broker."""
MOST_UNSETTLED: Final = 100
MOST_BYTES: Final = 16 * 1024 * 1024
"""Limit for records that no handler has, and for unstored requests."""
MOST_WAITING: Final = 100
MOST_HELD_BYTES: Final = 4 * 1024 * 1024
"""Limit for a partition's suspended records and records queued behind their key."""
HOPELESS: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.FENCED_INSTANCE_ID,
    }
)
"""Errors that do not pass. librdkafka recovers from all others."""

RequestOf: TypeAlias = Callable[[Received, Failure], Request]

log = logging.getLogger("kafka_delay")


class LogsBeganAnew(Exception):
    """Some partitions hold other records now. Open another consumer."""


class Pauses:
    """Paused partitions. Pauses are rare, because they cause records to be fetched again."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self.paused: AbstractSet[Partition] = set()
        self.is_all = False

    def pause_all(self) -> None:
        """Pause all partitions, also new ones."""
        self.is_all = True
        self._set(_names(self._consumer.assignment()))

    def pause_only(self, partitions: AbstractSet[Partition]) -> None:
        self.is_all = False
        if partitions or self.paused:
            self._set(partitions & _names(self._consumer.assignment()))

    def forget(self, partitions: Collection[Partition]) -> None:
        """Resume partitions that go to another consumer, because they may come back."""
        gone = self.paused & set(partitions)
        self._change(self._consumer.resume, gone)
        self.paused -= gone

    def _set(self, wanted: AbstractSet[Partition]) -> None:
        self._change(self._consumer.pause, wanted - self.paused)
        self._change(self._consumer.resume, self.paused - wanted)
        self.paused = wanted

    def _change(
        self, change: Callable[[list[TopicPartition]], object], partitions: AbstractSet[Partition]
    ) -> None:
        if partitions:
            change([TopicPartition(topic, number) for topic, number in partitions])


class ConsumerLoop:
    """One membership in a group, in one thread, which polls while handlers run elsewhere."""

    def __init__(
        self,
        consumer: Consumer,
        settlement: Settlement,
        handling: Handling,
        rules: FailureRules,
        request_of: RequestOf,
        believed: Believed,
        max_hanging: int,
        revoke_within_s: float,
        watch: TopicWatch,
        local_retries: LocalRetries | None = None,
    ) -> None:
        self._consumer, self._settlement, self._handling = consumer, settlement, handling
        self._rules, self._request_of, self._believed = rules, request_of, believed
        self._max_hanging, self._revoke_within_s = max_hanging, revoke_within_s
        self._watch, self._local_retries = watch, local_retries
        self._backlog, self._pauses = Backlog(), Pauses(consumer)
        self._polled_s = 0.0
        self._unsettled_since_s: float | None = None
        self._unanswered: NoAnswer | None = None
        self._settle_not_before_s = self._looked_s = self._asked_s = 0.0
        self._has_begun_anew = self._is_over = False

    def run(self, topics: list[str], is_stopping: Callable[[], bool]) -> None:
        """Work until told to stop. Then wait for handlers and commit. Raises LogsBeganAnew."""
        self.join(topics)
        try:
            while not is_stopping():
                self.turn()
            self._finish()
        except LogsBeganAnew:
            self._drain(self._watch.partitions, time.monotonic() + FINISH_WITHIN_S)
            self._settle()
            self._drop(list(self._watch.partitions))
            raise
        finally:
            self._is_over = True

    def join(self, topics: list[str]) -> None:
        self._consumer.subscribe(
            topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def turn(self) -> None:
        """Read new records, note how handlers ended, and commit when it is time."""
        self._look(TOPICS_EVERY_S)
        has_more = self._may_poll() and self._take_what_is_there()
        self._note_outcomes(0 if has_more else LOOK_EVERY_S)
        if self._is_time() or (not has_more and self._handling.is_idle):
            self._settle()
        self._handling.resume()
        if self._has_begun_anew:
            raise LogsBeganAnew

    def _may_poll(self) -> bool:
        """A full consumer polls rarely, with all partitions paused."""
        is_full, now_s = self._is_full(), time.monotonic()
        if is_full and not self._pauses.is_all and now_s < self._polled_s + POLL_AT_LEAST_EVERY_S:
            return False
        if is_full:
            self._pauses.pause_all()
        else:
            self._pauses.pause_only(self._crowded())
        self._polled_s = now_s
        return True

    def _take_what_is_there(self) -> bool:
        """Take every record before the next poll, which may revoke its partition."""
        handling = self._handling
        is_idle = handling.is_idle and not self._backlog
        wait_s = min(POLL_S, handling.due_within_s()) if is_idle else 0
        taken = 0
        while (message := self._consumer.poll(0 if taken else wait_s)) is not None:
            self._take_or_raise(message)
            taken += 1
            if taken == MOST_WAITING or self._is_full() or self._has_to_pause():
                break
        handling.wake()
        return taken > 0

    def _take_or_raise(self, message: Message) -> None:
        error = message.error()
        if error is None:
            self._take(message)
        elif error.fatal() or error.code() in HOPELESS:
            raise KafkaException(error)
        else:
            log.warning("the consumer goes on after: %s", error.str())

    def _is_full(self) -> bool:
        """A full consumer stays full until half is done."""
        handling, share = self._handling, 2 if self._pauses.is_all else 1
        is_large = handling.waiting_bytes >= MOST_BYTES // share
        return is_large or handling.waiting >= MOST_WAITING // share

    def _has_to_pause(self) -> bool:
        return not self._handling.crowded(MOST_HELD_BYTES) <= self._pauses.paused

    def _crowded(self) -> AbstractSet[Partition]:
        """Return the partitions to pause. A paused one resumes when half is done."""
        backlog, handling = self._backlog, self._handling
        still = backlog.crowded(share=2) | handling.crowded(MOST_HELD_BYTES // 2)
        now = backlog.crowded() | handling.crowded(MOST_HELD_BYTES)
        return (still & self._pauses.paused) | now

    def _take(self, message: Message) -> None:
        place, epoch = place_of(message), message.leader_epoch() or 0
        if not self._is_of_this_log(place, epoch):
            return
        if not self._backlog.taken(place, epoch):
            log.debug("%s is done, or in hand, and is left out", place)
            return
        record, why = self._read(message)
        if why is None:
            self._handling.add(record)
            return
        log.warning("%s goes to the dead letters: %s", place, why)
        is_refused = place.topic == self._believed.retry_topic
        self._failed(record, Failure(str(why), is_final=True, is_refused=is_refused))

    def _read(self, message: Message) -> tuple[Received, Exception | None]:
        """Return the record, and the reason if no handler may have it."""
        try:
            record = received(message, self._believed.retry_topic)
        except UnreadableHeaders as error:
            place, stamp_ms = place_of(message), message.timestamp()[1]
            return Received(place, place, 0, message.key(), message.value(), [], stamp_ms), error
        try:
            self._believed.need(record)
        except NotBelieved as error:
            return replace(record, original=record.read_from, attempt=0), error
        return record, None

    def _is_of_this_log(self, place: Place, epoch: int) -> bool:
        """Return False if the log may have been replaced. The record then comes again."""
        is_known = not self._backlog.reads_back(place) or self._look()
        if not self._has_begun_anew and (not is_known or self._backlog.is_rewritten(place, epoch)):
            start = min(place.offset, self._backlog.end(place.topic_partition))
            self._begin_anew({place.topic_partition: start}, "the log was cut off")
        return not self._has_begun_anew

    def _look(self, every_s: float = 0.0) -> bool:
        """Check for recreated topics. Return False if the broker did not answer."""
        now_s = time.monotonic()
        if now_s - self._asked_s < every_s:
            return self._looked_s >= self._asked_s
        self._asked_s = now_s
        try:
            anew = self._watch.look()
        except KafkaException as error:
            log.debug("no broker says whether topics were made anew: %s", error.args[0].str())
            return False
        self._looked_s = now_s
        if anew:
            self._begin_anew(dict.fromkeys(anew, 0), "the topic was deleted and made anew")
        return True

    def _may_commit(self) -> AbstractSet[Partition]:
        """Return partitions whose topic is gone, which are not committed."""
        if not self._look(SETTLE_EVERY_S):
            raise NoAnswer("no broker says whether the topics are still the same")
        return self._watch.gone

    def _begin_anew(self, starts: Mapping[Partition, int], why: str) -> None:
        """Drop the records of replaced partitions. The next consumer begins at `starts`."""
        self._has_begun_anew = True
        places = sorted(Place(*partition, start) for partition, start in starts.items())
        for topic, number, start in places:
            log.warning(
                "%s/%s: %s. It is read again from offset %s. Records of the old log that were in "
                "hand are given up",
                *(topic, number, why, start),
            )
        self._drop(starts)
        try:
            commit(self._consumer, places)
        except (GroupMoved, NoAnswer, KafkaException) as error:
            log.warning("the new offsets of %s were not committed: %s", sorted(starts), error)

    def _note_outcomes(self, wait_s: float) -> None:
        """Note all outcomes, then raise the error that ends the consumer, if any."""
        fatal: BaseException | None = None
        for record, error in self._handling.outcomes(wait_s):
            if error is None:
                self._backlog.handled(record.read_from)
            elif isinstance(error, Exception):
                self._raised(record, error)
            else:
                fatal = error
        if fatal is not None:
            raise fatal
        self._handling.raise_if_too_many_hang(self._max_hanging)
        self._handling.raise_if_none_begins()

    def _raised(self, record: Received, error: Exception) -> None:
        if isinstance(error, HandlerTimedOut):
            failure: Failure | None = Failure(f"{type(error).__name__}: {error}")
        else:
            failure = self._rules.failure_of(error)
        if failure is None:
            log.info("%s is handled in spite of %r", record.read_from, error)
            self._backlog.handled(record.read_from)
        else:
            log.info("%s failed (%s before): %r", record.read_from, record.attempt, error)
            if self._local_retries is not None:
                wait_s = self._local_retries.wait_s(record, failure)
                if wait_s is not None:
                    self._handling.suspend(replace(record, attempt=record.attempt + 1), wait_s)
                    return
                failure = Failure(failure.reason, is_final=True)
            self._failed(record, failure)
        self._handling.release(record)

    def _failed(self, record: Received, failure: Failure) -> None:
        self._backlog.failed(record.read_from, self._request_of(record, failure))

    def _is_time(self) -> bool:
        if not self._backlog:
            self._unsettled_since_s = None
            return False
        now_s = time.monotonic()
        self._unsettled_since_s = self._unsettled_since_s or now_s
        return (
            self._backlog.records >= MOST_UNSETTLED
            or self._backlog.request_bytes >= MOST_BYTES
            or now_s - self._unsettled_since_s >= SETTLE_EVERY_S
        )

    def _settle(self) -> bool:
        """Store and commit. Return False if it must be repeated after a poll."""
        if not self._backlog:
            return True
        if time.monotonic() < self._settle_not_before_s:
            return False
        self._unanswered = None
        try:
            self._settlement.settle(self._backlog, self._may_commit)
        except GroupMoved as moved:
            log.info("the group is being shared out anew: %s", moved)
            return False
        except NoAnswer as unanswered:
            log.warning("offsets are not committed yet: %s", unanswered)
            self._unanswered = unanswered
            self._settle_not_before_s = time.monotonic() + SETTLE_EVERY_S
            return False
        except Exception:
            self._backlog.clear()
            raise
        self._unsettled_since_s = None
        return True

    def _finish(self) -> None:
        """Commit while waiting for running handlers. Other records are read again later."""
        while self._handling.is_at_work():
            self._poll_for_nothing(0)
            self._note_outcomes(LOOK_EVERY_S)
            if self._is_time():
                self._settle()
        began_s = time.monotonic()
        while not self._settle():
            within_s = FINISH_WITHIN_S if self._unanswered else self._revoke_within_s
            if time.monotonic() >= began_s + within_s:
                break
            self._poll_for_nothing(POLL_S)
        if self._unanswered:
            self._backlog.clear()
            raise ClientError(
                f"the last offsets could not be committed within {FINISH_WITHIN_S:g} s "
                f"({self._unanswered}): the records behind the last commit will come again; see "
                "whether the brokers can be reached"
            )

    def _poll_for_nothing(self, wait_s: float) -> None:
        """Serve rebalances. Records that arrive are not committed."""
        self._pauses.pause_all()
        self._consumer.poll(wait_s)

    def _on_assign(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Ask for topic ids before committed offsets, unless the consumer has left the group."""
        if not self._is_over:
            self._watch.begin(_names(partitions))
            self._look()

    def _on_revoke(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Let handlers end and commit while the group waits."""
        gone = _names(partitions)
        self._handling.drop_waiting(gone)
        until_s = time.monotonic() + (0 if self._is_over else self._revoke_within_s)
        try:
            self._drain(gone, until_s)
        finally:
            try:
                self._settle()
            finally:
                self._drop(gone)

    def _drain(self, gone: Collection[Partition], until_s: float) -> None:
        """Wait for handlers and commit. A refused commit is final: others need a poll first."""
        is_taken = True
        while self._handling.is_at_work(gone) and time.monotonic() < until_s:
            self._note_outcomes(LOOK_EVERY_S)
            if is_taken and self._is_time():
                is_taken = self._settle()

    def _on_lost(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._drop(_names(partitions))

    def _drop(self, gone: Collection[Partition]) -> None:
        self._watch.forget(gone)
        self._pauses.forget(gone)
        self._handling.drop(gone)
        self._backlog.drop(gone)


def _names(partitions: list[TopicPartition]) -> set[Partition]:
    return {(one.topic, one.partition) for one in partitions}
