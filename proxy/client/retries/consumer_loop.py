"""The loop of a retry consumer: poll, hand out, take note of what has ended, settle."""

import logging
import time
from collections.abc import Callable, Collection
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Final, TypeAlias

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from proxy.client.place import Partition, UnreadableHeaders, place_of
from proxy.client.request import Request
from proxy.client.retries.committing.backlog import Backlog
from proxy.client.retries.committing.settlement import GroupMoved, Settlement
from proxy.client.retries.handling.failure import Failure
from proxy.client.retries.handling.failure_rules import FailureRules
from proxy.client.retries.handling.handling import HandlerTimedOut, Handling
from proxy.client.retries.local_retries import LocalRetries
from proxy.client.retries.pauses import Pauses
from proxy.client.retries.received import Received, received

POLL_S: Final = 0.5
LOOK_EVERY_S: Final = 0.02
"""While handlers are at work, for records that have come meanwhile."""
POLL_AT_LEAST_EVERY_S: Final = 1.0
SETTLE_EVERY_S: Final = 1.0
MOST_UNSETTLED: Final = 100
MOST_BYTES: Final = 16 * 1024 * 1024
"""The size of the records that wait for a handler; and of the requests that are not stored."""
MOST_WAITING: Final = 100
MOST_HELD_BYTES: Final = 4 * 1024 * 1024
"""Of a partition's records that are suspended, or wait behind another of their key."""

RequestOf: TypeAlias = Callable[[Received, Failure], Request]

log = logging.getLogger("proxy.client")


class ConsumerLoop:
    """What a retry consumer does between joining its group and leaving it, in one thread.

    Handlers run elsewhere, so that this thread can poll whatever they do: the group keeps its
    member, and a rebalance is served at once.
    """

    def __init__(
        self,
        consumer: Consumer,
        settlement: Settlement,
        handling: Handling,
        rules: FailureRules,
        request_of: RequestOf,
        retry_topic: str,
        max_hanging: int,
        revoke_within_s: float,
        local_retries: LocalRetries | None = None,
    ) -> None:
        self._consumer, self._settlement, self._handling = consumer, settlement, handling
        self._rules, self._request_of, self._retry_topic = rules, request_of, retry_topic
        self._max_hanging, self._revoke_within_s = max_hanging, revoke_within_s
        self._local_retries = local_retries
        self._backlog, self._pauses = Backlog(), Pauses(consumer)
        self._polled_s = 0.0
        self._unsettled_since_s: float | None = None
        self._is_over = False

    def run(self, topics: list[str], is_stopping: Callable[[], bool]) -> None:
        """Work until told to stop; then wait for the handlers at work and commit."""
        self.join(topics)
        try:
            while not is_stopping():
                self.turn()
            self._finish()
        finally:
            self._is_over = True

    def join(self, topics: list[str]) -> None:
        """Ask the group for partitions of these topics."""
        self._consumer.subscribe(topics, on_revoke=self._on_revoke, on_lost=self._on_lost)

    def turn(self) -> None:
        """Read what is there, note what handlers have come to, and commit when it is time."""
        has_more = self._may_poll() and self._take_what_is_there()
        self._note_outcomes(0 if has_more else LOOK_EVERY_S)
        if self._is_time() or (not has_more and self._handling.is_idle):
            self._settle()
        self._handling.resume()

    def _may_poll(self) -> bool:
        """Polled all the same, with everything paused, when it has been full for long."""
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
        """Each record before the next poll, which may take away its partition."""
        handling = self._handling
        is_idle = handling.is_idle and not self._backlog
        wait_s = min(POLL_S, handling.due_within_s()) if is_idle else 0
        taken = 0
        while self._take_one(wait_s if not taken else 0):
            taken += 1
            if taken == MOST_WAITING or self._is_full() or self._has_to_pause():
                break
        handling.wake()
        return taken > 0

    def _take_one(self, wait_s: float) -> bool:
        message = self._consumer.poll(wait_s)
        if message is None:
            return False
        error = message.error()
        if error is None:
            self._take(message)
        else:
            _raise_if_hopeless(error)
        return True

    def _is_full(self) -> bool:
        """Once everything is paused, it stays so until half is done."""
        handling, share = self._handling, 2 if self._pauses.is_all else 1
        is_large = handling.waiting_bytes >= MOST_BYTES // share
        return is_large or handling.waiting >= MOST_WAITING // share

    def _has_to_pause(self) -> bool:
        """Whether much has come of a partition whose records are held behind their keys."""
        return not self._handling.crowded(MOST_HELD_BYTES) <= self._pauses.paused

    def _crowded(self) -> AbstractSet[Partition]:
        """Partitions with too many records behind one that is not done with, or too large ones."""
        backlog, handling = self._backlog, self._handling
        still = backlog.crowded(share=2) | handling.crowded(MOST_HELD_BYTES // 2)
        now = backlog.crowded() | handling.crowded(MOST_HELD_BYTES)
        return (still & self._pauses.paused) | now

    def _take(self, message: Message) -> None:
        place = place_of(message)
        if not self._backlog.taken(place):
            log.debug("%s is done, or in hand, and is left out", place)
            return
        try:
            record = received(message, self._retry_topic)
        except UnreadableHeaders as error:
            self._failed(_without_headers(message), Failure(str(error), is_final=True))
            return
        self._handling.add(record)

    def _note_outcomes(self, wait_s: float) -> None:
        """Raises what ends the consumer, after all that has ended is noted."""
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
                self._failed_in_order(record, failure, self._local_retries)
                return
            self._failed(record, failure)
        self._handling.release(record)

    def _failed_in_order(
        self, record: Received, failure: Failure, local_retries: LocalRetries
    ) -> None:
        """Its key waits for it, until it is given up."""
        wait_s = local_retries.wait_s(record, failure)
        if wait_s is None:
            self._failed(record, Failure(failure.reason, is_final=True))
            self._handling.release(record)
        else:
            self._handling.suspend(replace(record, attempt=record.attempt + 1), wait_s)

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
        """False when it has to be done again after a poll."""
        if not self._backlog:
            return True
        try:
            self._settlement.settle(self._backlog)
        except GroupMoved as moved:
            log.info("the group is being shared out anew: %s", moved)
            return False
        except Exception:
            self._backlog.clear()
            raise
        self._unsettled_since_s = None
        return True

    def _finish(self) -> None:
        """What no handler has begun with is left; it will be read again.

        What ends meanwhile is committed as ever: the slowest handler may take long.
        """
        while self._handling.is_at_work():
            self._poll_for_nothing(0)
            self._note_outcomes(LOOK_EVERY_S)
            if self._is_time():
                self._settle()
        until_s = time.monotonic() + self._revoke_within_s
        while not self._settle() and time.monotonic() < until_s:
            self._poll_for_nothing(POLL_S)

    def _poll_for_nothing(self, wait_s: float) -> None:
        """A record that comes all the same is left: nobody commits it."""
        self._pauses.pause_all()
        self._consumer.poll(wait_s)

    def _on_revoke(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """What is in hand may end, for as long as the group waits for its members."""
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
        """Wait for handlers at work on these partitions, and commit what ends meanwhile, until a
        commit is refused: only a poll would cure that.
        """
        is_taken = True
        while self._handling.is_at_work(gone) and time.monotonic() < until_s:
            self._note_outcomes(LOOK_EVERY_S)
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


def _without_headers(message: Message) -> Received:
    place = place_of(message)
    return Received(place, place, 0, message.key(), message.value(), [], message.timestamp()[1])


def _raise_if_hopeless(error: KafkaError) -> None:
    """Raise what no waiting cures; librdkafka sees to the rest by itself."""
    hopeless = {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.FENCED_INSTANCE_ID,
    }
    if error.fatal() or error.code() in hopeless:
        raise KafkaException(error)
    log.warning("the consumer goes on after: %s", error.str())
