"""Has records handled, so many at a time, each key in order, none longer than its time limit."""

import logging
import time
from collections.abc import Callable, Collection, Iterator
from math import inf
from threading import Condition
from typing import Final, NamedTuple

from proxy.client.errors import HandlersHang
from proxy.client.place import Partition
from proxy.client.retries.handling.failure import described
from proxy.client.retries.handling.job import Job, Runner
from proxy.client.retries.handling.key_order import KeyOf, KeyOrder, by_key
from proxy.client.retries.received import Received

FEW_WAITING: Final = 50
"""With so few records left the thread that polls is woken, to get more."""
SAY_EVERY_S: Final = 60.0
"""That records wait and nothing moves."""
BEGINS_WITHIN_S: Final = 10.0
"""On any machine, when there is a handler to begin."""
CANCELLED_WITHIN_S: Final = 1.0
"""A task that is given up needs a turn of its event loop to end."""

log = logging.getLogger("proxy.client")


class HandlerTimedOut(Exception):
    """What a handler that does not return in time is taken to have raised."""


class Outcome(NamedTuple):
    """A record whose handler has returned, or raised `error`: then it keeps its key until whoever
    takes the outcome releases or suspends it.
    """

    record: Received
    error: BaseException | None


class Handling:
    """Between the thread that polls, and whoever calls handlers (`Jobs`): what waits, what is in
    hand, what has ended.

    `may_begin` says whether more handlers may be called; `now_s` is the clock.
    """

    def __init__(
        self,
        runner: Runner,
        parallel: int,
        timeout_s: float,
        may_begin: Callable[[], bool] = lambda: True,
        now_s: Callable[[], float] = time.monotonic,
        key_of: KeyOf = by_key,
    ) -> None:
        self._runner, self._parallel, self._timeout_s = runner, parallel, timeout_s
        self._may_begin, self._now_s = may_begin, now_s
        self._changed = Condition()
        """Holds all of what follows together; whoever polls waits for it."""
        self._order = KeyOrder(key_of)
        self._in_hand: dict[Job, None] = {}
        self._given_up: dict[Job, float] = {}
        """And since when."""
        self._ended: list[Outcome] = []
        self._is_over = False
        self._moved_s = self._said_s = now_s()
        """When a handler last began or ended, or no record waited for one; when that was said."""
        self._idle_since_s: float | None = None
        """Since then records wait, no handler is at work, and none has begun."""

    @property
    def waiting(self) -> int:
        """Records that a handler could begin with, were one free: not those behind one of their
        key.
        """
        return self._order.records

    @property
    def waiting_bytes(self) -> int:
        """Their keys and values."""
        return self._order.size_bytes

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits, is in hand, or has ended without `outcomes` having told it."""
        with self._changed:
            return not (self._order.records or self._in_hand or self._ended)

    @property
    def hanging(self) -> int:
        """Handlers that were given up and have not returned."""
        return len(self._given_up)

    def raise_if_too_many_hang(self, most: int) -> None:
        """Raises HandlersHang. Those that were given up just now have time to be cancelled."""
        with self._changed:
            before_s = self._now_s() - CANCELLED_WITHIN_S
            hanging = sum(since_s <= before_s for since_s in self._given_up.values())
        if hanging > most:
            raise HandlersHang(hanging, f"more than max_hanging={most}")

    def raise_if_none_begins(self) -> None:
        """Raises HandlersHang: records wait, none is at work, and it goes on so for too long."""
        long_s = max(self._timeout_s, BEGINS_WITHIN_S)
        with self._changed:
            since_s = self._idle_since_s
            is_idle_too_long = since_s is not None and self._now_s() - since_s >= long_s
        if is_idle_too_long:
            raise HandlersHang(self.hanging, "one of them blocks the event loop")

    def is_at_work(self, partitions: Collection[Partition] | None = None) -> bool:
        """Whether a record of these partitions, or of any that we have, is in hand, or has an
        outcome that was not told.
        """
        with self._changed:
            records = [one.record for one in self._ended]
            records += [job.record for job in self._in_hand if not job.is_dropped]
        return any(partitions is None or _is_of(record, partitions) for record in records)

    def due_within_s(self) -> float:
        """How long until a suspended record is due."""
        with self._changed:
            due_s = self._order.first_due_s()
        return inf if due_s is None else max(0.0, due_s - self._now_s())

    def crowded(self, most_bytes: int) -> set[Partition]:
        """The partitions of which so much is suspended, or waits behind a record of its key."""
        with self._changed:
            held = self._order.held_bytes.items()
            return {partition for partition, held_bytes in held if held_bytes >= most_bytes}

    def add(self, record: Received) -> None:
        """To be handled when it is its turn, and somebody has been woken."""
        with self._changed:
            self._order.add(record)

    def release(self, record: Received) -> None:
        """After an outcome with an error: the next record of its key may be handled."""
        with self._changed:
            self._order.done(record)

    def suspend(self, record: Received, wait_s: float) -> None:
        """Or the record itself again, after `wait_s`, and the next one of its key after it."""
        with self._changed:
            self._order.suspend(record, self._now_s() + wait_s)

    def resume(self) -> None:
        """Suspended records that are due are to be handled."""
        with self._changed:
            self._order.resume(self._now_s())

    def wake(self) -> None:
        """Tell those who call handlers that there may be jobs."""
        if self._order.records and len(self._in_hand) < self._parallel:
            self._runner.wake(self)

    def take(self) -> Job | None:
        """The next job; None when there is none now, or enough are at work."""
        with self._changed:
            is_enough = self._is_over or len(self._in_hand) >= self._parallel
            if is_enough or not self._may_begin():
                return None
            record = self._order.next()
            if record is None:
                return None
            now_s = self._now_s()
            job = Job(record, now_s)
            self._in_hand[job] = None
            self._moved_s, self._idle_since_s = now_s, None
            return job

    def end(self, job: Job, error: BaseException | None) -> bool:
        """The handler has returned, or raised. False: the job had been given up before."""
        with self._changed:
            self._moved_s = self._now_s()
            was_given_up = job in self._given_up
            is_wanted = not was_given_up and (_ends_run(error) or not job.is_dropped)
            if was_given_up:
                del self._given_up[job]
            else:
                del self._in_hand[job]
                if error is None or job.is_dropped:
                    self._order.done(job.record)
                self._is_over |= _ends_run(error)
            if is_wanted:
                self._ended.append(Outcome(job.record, error))
            if error is not None or self._are_few:
                self._changed.notify_all()
        if not is_wanted:
            self._say_too_late(job, error)
        return not was_given_up

    def outcomes(self, wait_s: float) -> list[Outcome]:
        """What has ended since the last call, also because it takes too long.

        Waits at most so long: until something has ended and few records wait.
        """
        with self._changed:
            has_enough = self._ended and self._are_few
            if wait_s and self._in_hand and not has_enough:
                self._changed.wait(wait_s)
            ended, self._ended = self._ended, []
            ended += [outcome for job in list(self._in_hand) for outcome in self._overdue(job)]
            self._look_whether_it_moves()
        self.wake()
        return ended

    def drop(self, partitions: Collection[Partition]) -> None:
        """Partitions went to another consumer: what waits is forgotten, what is in hand ignored,
        but for what ends the consumer.
        """
        with self._changed:
            self._order.drop(partitions)
            ended, self._ended = self._ended, []
            for one in ended:
                if _ends_run(one.error) or not _is_of(one.record, partitions):
                    self._ended.append(one)
                elif one.error is not None:
                    self._order.done(one.record)
            for job in self._in_hand:
                job.is_dropped = job.is_dropped or _is_of(job.record, partitions)

    def drop_waiting(self, partitions: Collection[Partition]) -> None:
        """Forget what no handler has begun with."""
        with self._changed:
            self._order.drop(partitions)

    @property
    def _are_few(self) -> bool:
        """Whether handlers would soon have nothing to do. What is behind a key feeds one alone."""
        order = self._order
        feeds_all = len(self._in_hand) >= self._parallel - 1
        return order.records + (order.behind if feeds_all else 0) <= FEW_WAITING

    def _look_whether_it_moves(self) -> None:
        now_s, is_idle = self._now_s(), self._order.records and not self._in_hand
        self._idle_since_s = (self._idle_since_s or now_s) if is_idle else None
        waiting = self._order.records + self._order.behind
        if not waiting:
            self._moved_s = now_s
        if now_s - max(self._moved_s, self._said_s) < SAY_EVERY_S:
            return
        self._said_s = now_s
        log.warning(
            "for %.0f s no handler has begun or ended: %s at work, %s given up that still run, %s "
            "records wait for them",
            now_s - self._moved_s,
            len(self._in_hand),
            self.hanging,
            waiting,
        )

    def _overdue(self, job: Job) -> Iterator[Outcome]:
        """Gives the job up if it takes too long."""
        now_s = self._now_s()
        if now_s - job.started_s < self._timeout_s:
            return
        del self._in_hand[job]
        self._given_up[job] = now_s
        self._runner.give_up(job)
        what = f"the handler has not returned within {self._timeout_s:g} s"
        log.warning("%s: %s and may still be running", job.record.read_from, what)
        if job.is_dropped:
            self._order.done(job.record)
        else:
            yield Outcome(job.record, HandlerTimedOut(what))

    def _say_too_late(self, job: Job, error: BaseException | None) -> None:
        log.warning(
            "%s: its handler has ended too late, after %.1f s (%s); that is ignored",
            job.record.read_from,
            self._now_s() - job.started_s,
            "returned" if error is None else described(error),
        )


def _ends_run(error: BaseException | None) -> bool:
    """Such as SystemExit: it is nobody's failed record."""
    return not isinstance(error, Exception | None)


def _is_of(record: Received, partitions: Collection[Partition]) -> bool:
    return record.read_from.topic_partition in partitions
