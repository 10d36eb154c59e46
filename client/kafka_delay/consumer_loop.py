"""The loop of a retry consumer: poll, give records to handlers, collect results, commit."""

import logging
import time
from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from kafka_delay.commits import Backlog, GroupMoved, NoAnswer, commit, settle
from kafka_delay.errors import ClientError
from kafka_delay.handlers import Handling
from kafka_delay.ingress_writer import IngressWriter
from kafka_delay.kafka import Partition, Place, place_of
from kafka_delay.retries import Failure, Received, RetryPlan
from kafka_delay.topics import IdsOf

POLL_S: Final = 0.5
LOOK_EVERY_S: Final = 0.02
"""Interval of polls while handlers run."""
POLL_AT_LEAST_EVERY_S: Final = 1.0
SETTLE_EVERY_S: Final = 1.0
TOPICS_EVERY_S: Final = 5.0
"""Interval of checks for recreated topics. A commit needs a check in the last SETTLE_EVERY_S."""
FINISH_WITHIN_S: Final = 10.0
"""Time limit of the last commit if no broker answers."""
MOST_UNSETTLED: Final = 100
MOST_BYTES: Final = 16 * 1024 * 1024
"""Limit for the records that wait for a handler.

Another limit of this size is for retry requests that are not stored yet.
"""
MOST_WAITING: Final = 100
MOST_HELD_BYTES: Final = 4 * 1024 * 1024
"""Limit for a partition's failed records that wait for their next delivery attempt (`orderly`).

Records queued behind another record of their key count, too.
"""
HOPELESS: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.FENCED_INSTANCE_ID,
    }
)
"""Errors that end the consumer. librdkafka recovers from all other errors."""

log = logging.getLogger("kafka_delay")


class LogsBeganAnew(Exception):
    """Topics were recreated, so partitions have other records. A new consumer must continue."""


class Pauses:
    """The paused partitions. Pauses are rare, because each makes librdkafka fetch records again."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self.paused: AbstractSet[Partition] = set()
        self.is_all = False

    def pause_all(self) -> None:
        """Pause all partitions that the consumer has now."""
        self.is_all = True
        self._set(_names(self._consumer.assignment()))

    def pause_only(self, partitions: AbstractSet[Partition]) -> None:
        self.is_all = False
        if partitions or self.paused:
            self._set(partitions & _names(self._consumer.assignment()))

    def forget(self, partitions: Collection[Partition]) -> None:
        """End the pause of revoked partitions. Otherwise they could come back paused."""
        self._set(self.paused - set(partitions))

    def _set(self, wanted: AbstractSet[Partition]) -> None:
        if new := wanted - self.paused:
            self._consumer.pause([TopicPartition(*one) for one in new])
        if old := self.paused - wanted:
            self._consumer.resume([TopicPartition(*one) for one in old])
        self.paused = wanted


class ConsumerLoop:
    """A consumer's membership in its group. One thread polls. Handlers run in other threads."""

    def __init__(
        self,
        consumer: Consumer,
        writer: IngressWriter,
        handling: Handling,
        plan: RetryPlan,
        ids_of: IdsOf,
        max_hanging: int,
        revoke_within_s: float,
    ) -> None:
        self._consumer, self._writer, self._handling = consumer, writer, handling
        self._plan, self._ids_of = plan, ids_of
        self._max_hanging, self._revoke_within_s = max_hanging, revoke_within_s
        self._backlog, self._pauses = Backlog(), Pauses(consumer)
        self._polled_s = 0.0
        self._unsettled_since_s: float | None = None
        self._unanswered: NoAnswer | None = None
        self._settle_not_before_s = self._looked_s = self._asked_s = 0.0
        self._has_begun_anew = self._is_over = False

    def run(self, topics: list[str], is_stopping: Callable[[], bool]) -> None:
        """Work until `is_stopping`. Then wait for running handlers and commit.

        Raises LogsBeganAnew.
        """
        self.join(topics)
        try:
            while not is_stopping():
                self.turn()
            self._finish()
        except LogsBeganAnew:
            self._drain(self._backlog.partitions, time.monotonic() + FINISH_WITHIN_S)
            self._settle()
            self._drop(list(self._backlog.partitions))
            raise
        finally:
            self._is_over = True

    def join(self, topics: list[str]) -> None:
        self._consumer.subscribe(
            topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def turn(self) -> None:
        """Read new records, collect results, and commit if it is time."""
        self._look(TOPICS_EVERY_S)
        has_more = self._may_poll() and self._take_what_is_there()
        self._note_results(0 if has_more else LOOK_EVERY_S)
        if self._is_time() or (not has_more and self._handling.is_idle):
            self._settle()
        self._handling.resume()
        if self._has_begun_anew:
            raise LogsBeganAnew

    def _may_poll(self) -> bool:
        """Return whether to poll now.

        While enough records wait, up to a second passes without a poll. Then pause all partitions
        and poll, so that the group keeps this member.
        """
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
        """Read the records that have arrived. Return whether there were some.

        Each record is taken before the next poll, because a poll may revoke its partition.
        """
        handling = self._handling
        is_idle = handling.is_idle and not self._backlog
        wait_s = min(POLL_S, handling.due_within_s()) if is_idle else 0
        taken = 0
        while (message := self._consumer.poll(0 if taken else wait_s)) is not None:
            error = message.error()
            if error is None:
                self._take(message)
            elif error.fatal() or error.code() in HOPELESS:
                raise KafkaException(error)
            else:
                log.warning("the consumer continues after an error: %s", error.str())
            taken += 1
            has_to_pause = not handling.crowded(MOST_HELD_BYTES) <= self._pauses.paused
            if taken == MOST_WAITING or self._is_full() or has_to_pause:
                break
        handling.wake()
        return taken > 0

    def _is_full(self) -> bool:
        """Return whether enough records wait.

        A pause of all partitions ends when waiting records use less than half of each limit.
        """
        handling, share = self._handling, 2 if self._pauses.is_all else 1
        is_large = handling.waiting_bytes >= MOST_BYTES // share
        return is_large or handling.waiting >= MOST_WAITING // share

    def _crowded(self) -> AbstractSet[Partition]:
        """Return the partitions to pause. A paused partition resumes below half of its limits."""
        backlog, handling = self._backlog, self._handling
        still = backlog.crowded(share=2) | handling.crowded(MOST_HELD_BYTES // 2)
        now = backlog.crowded() | handling.crowded(MOST_HELD_BYTES)
        return (still & self._pauses.paused) | now

    def _take(self, message: Message) -> None:
        """Give a record to the handlers.

        Skip it if it was read before, or if the partition's log may have been replaced.
        """
        place, epoch = place_of(message), message.leader_epoch() or 0
        progress = self._backlog.partitions[place.topic_partition]
        is_same = place.offset > progress.given or self._look()
        if self._has_begun_anew:
            return
        if not is_same or (place.offset < progress.position and epoch > progress.epoch):
            start = min(place.offset, progress.end)
            self._begin_anew({place.topic_partition: start}, "the log was cut off")
            return
        if not self._backlog.taken(place, epoch):
            log.debug("%s was read before and is skipped", place)
            return
        record, refusal = self._plan.received(message)
        if refusal is None:
            self._handling.add(record)
            return
        log.warning("%s goes to the dead letters: %s", place, refusal)
        is_refused = place.topic == self._plan.retry_topic
        self._failed(record, Failure(refusal, is_final=True, is_refused=is_refused))

    def _look(self, every_s: float = 0.0) -> bool:
        """Check for recreated topics, at most once in `every_s`.

        Return False if the last check had no answer.
        """
        now_s = time.monotonic()
        if now_s - self._asked_s < every_s:
            return self._looked_s >= self._asked_s
        self._asked_s = now_s
        topics = {topic for topic, _ in self._backlog.partitions}
        try:
            anew = self._backlog.recreated(self._ids_of(topics) if topics else {})
        except KafkaException as error:
            log.debug("no broker answered the check for recreated topics: %s", error.args[0].str())
            return False
        self._looked_s = now_s
        if anew:
            self._begin_anew(dict.fromkeys(anew, 0), "the topic was deleted and created again")
        return True

    def _look_before_commit(self) -> None:
        if not self._look(SETTLE_EVERY_S):
            raise NoAnswer("no broker answered the check for recreated topics")

    def _begin_anew(self, starts: Mapping[Partition, int], why: str) -> None:
        """Drop the records of replaced partitions. The next consumer begins at `starts`."""
        self._has_begun_anew = True
        places = sorted(Place(*partition, start) for partition, start in starts.items())
        for topic, number, start in places:
            log.warning(
                "%s/%s: %s. It is read again from offset %s. Unfinished records of the old log are "
                "given up",
                *(topic, number, why, start),
            )
        self._drop(starts)
        try:
            commit(self._consumer, places)
        except (GroupMoved, NoAnswer, KafkaException) as error:
            log.warning("the new offsets of %s were not committed: %s", sorted(starts), error)

    def _note_results(self, wait_s: float) -> None:
        """Note the results of handlers. Then raise the error that ends the consumer, if any."""
        fatal: BaseException | None = None
        for record, error in self._handling.results(wait_s):
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
        failure = self._plan.rules.failure_of(error)
        if failure is None:
            log.info("%s counts as handled, its exception is ignored: %r", record.read_from, error)
            self._backlog.handled(record.read_from)
        else:
            log.info("%s failed (%s times before): %r", record.read_from, record.attempt, error)
            wait_s = self._plan.wait_s(record, failure)
            if wait_s is not None:
                self._handling.suspend(replace(record, attempt=record.attempt + 1), wait_s)
                return
            self._failed(record, failure)
        self._handling.release(record)

    def _failed(self, record: Received, failure: Failure) -> None:
        self._backlog.failed(record.read_from, self._plan.request(record, failure))

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
        """Store retry requests, and commit. Return False if a poll and another call are needed."""
        if not self._backlog:
            return True
        if time.monotonic() < self._settle_not_before_s:
            return False
        self._unanswered = None
        try:
            settle(self._consumer, self._writer, self._backlog, self._look_before_commit)
        except GroupMoved as moved:
            log.info("offsets are not committed yet, because the group rebalances: %s", moved)
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
        """Wait for running handlers, and commit. Records that still wait are read again later."""
        while self._handling.is_at_work():
            self._poll_for_nothing(0)
            self._note_results(LOOK_EVERY_S)
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
                f"({self._unanswered}). Records after the last commit will come again. Check that "
                "the brokers can be reached"
            )

    def _poll_for_nothing(self, wait_s: float) -> None:
        """Serve rebalances. Records that still arrive are not handled, and not committed."""
        self._pauses.pause_all()
        self._consumer.poll(wait_s)

    def _on_assign(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Ask for topic ids before the committed offsets are read."""
        if not self._is_over:
            self._backlog.begin(_names(partitions))
            self._look()

    def _on_revoke(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Wait for running handlers, and commit, while the group waits."""
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
        """Wait for handlers of revoked partitions, and commit.

        After a refused commit no other commit is tried, because another commit needs a poll first.
        """
        is_taken = True
        while self._handling.is_at_work(gone) and time.monotonic() < until_s:
            self._note_results(LOOK_EVERY_S)
            if is_taken and self._is_time():
                is_taken = self._settle()

    def _on_lost(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._drop(_names(partitions))

    def _drop(self, gone: Collection[Partition]) -> None:
        self._pauses.forget(gone)
        self._handling.drop(gone)
        self._backlog.drop(gone)


def _names(partitions: list[TopicPartition]) -> set[Partition]:
    return {(one.topic, one.partition) for one in partitions}
