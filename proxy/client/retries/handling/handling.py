"""Has records handled, so many at a time, each key in order, none longer than its time limit."""

import logging
import time
from collections.abc import Callable, Collection, Iterator
from queue import Empty
from typing import NamedTuple

from proxy.client.place import Partition
from proxy.client.retries.handling.job import Ended, Job, Runner
from proxy.client.retries.handling.key_order import KeyOrder
from proxy.client.retries.received import Received

log = logging.getLogger("proxy.client")


class HandlerTimedOut(Exception):
    """What a handler that does not return in time is taken to have raised."""


class Outcome(NamedTuple):
    """A record whose handler has returned, or raised `error`."""

    record: Received
    error: BaseException | None


class Handling:
    """Gives records to a runner and takes note of how they end. For one thread, which never waits
    longer than it says; `now_s` is its clock.
    """

    def __init__(
        self,
        runner: Runner,
        parallel: int,
        timeout_s: float,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._runner, self._parallel, self._timeout_s = runner, parallel, timeout_s
        self._now_s = now_s
        self._order = KeyOrder()
        self._in_hand: dict[Job, None] = {}
        self._given_up: set[Job] = set()

    @property
    def waiting(self) -> int:
        """Records that no handler has begun with."""
        return self._order.records

    @property
    def waiting_bytes(self) -> int:
        """Their keys and values."""
        return self._order.size_bytes

    @property
    def in_hand(self) -> int:
        """Handlers at work, those of partitions that are gone too."""
        return len(self._in_hand)

    @property
    def hanging(self) -> int:
        """Handlers that were given up and have not returned."""
        return len(self._given_up)

    def is_at_work(self, partitions: Collection[Partition] | None = None) -> bool:
        """Whether a handler has a record in hand: of these partitions, or of any that we have."""
        return any(
            not job.is_dropped and (partitions is None or _is_of(job, partitions))
            for job in self._in_hand
        )

    def add(self, record: Received) -> None:
        """To be handled when it is its turn."""
        self._order.add(record)

    def begin(self) -> None:
        """Start handlers, up to `parallel` at a time, for records that wait."""
        while len(self._in_hand) < self._parallel:
            record = self._order.next()
            if record is None:
                return
            job = Job(record, self._now_s())
            self._in_hand[job] = None
            self._runner.start(job)

    def outcomes(self, wait_s: float) -> list[Outcome]:
        """What has ended since; waits for the first at most so long, and only while one is at
        work.
        """
        ended = list(self._ended(wait_s if self._in_hand else 0))
        jobs = [Outcome(job.record, error) for job, error in ended if self._is_wanted(job, error)]
        return jobs + [outcome for job in list(self._in_hand) for outcome in self._overdue(job)]

    def done(self, record: Received) -> None:
        """The record of an outcome is dealt with: the next of its key may come."""
        self._order.done(record)

    def drop(self, partitions: Collection[Partition]) -> None:
        """Partitions went to another consumer: what waits is forgotten, what is in hand ignored."""
        self._order.drop(partitions)
        for job in self._in_hand:
            job.is_dropped = job.is_dropped or _is_of(job, partitions)

    def drop_waiting(self, partitions: Collection[Partition]) -> None:
        """Forget what no handler has begun with."""
        self._order.drop(partitions)

    def _ended(self, wait_s: float) -> Iterator[Ended]:
        queue = self._runner.ended
        try:
            yield queue.get(block=wait_s > 0, timeout=wait_s or None)
            while True:
                yield queue.get(block=False)
        except Empty:
            return

    def _is_wanted(self, job: Job, error: BaseException | None) -> bool:
        """Takes note of the end. False when it comes too late."""
        self._runner.release(job)
        if job in self._given_up:
            self._given_up.remove(job)
        else:
            del self._in_hand[job]
            if not job.is_dropped:
                return True
            self._order.done(job.record)
        log.warning(
            "%s: its handler has ended too late, after %.1f s (%s); that is ignored",
            job.record.read_from,
            self._now_s() - job.started_s,
            "returned" if error is None else repr(error),
        )
        return False

    def _overdue(self, job: Job) -> Iterator[Outcome]:
        """Gives the job up if it takes too long."""
        if self._now_s() - job.started_s < self._timeout_s:
            return
        del self._in_hand[job]
        self._given_up.add(job)
        self._runner.give_up(job)
        what = f"the handler has not returned within {self._timeout_s:g} s"
        log.warning("%s: %s and may still be running", job.record.read_from, what)
        if job.is_dropped:
            self._order.done(job.record)
        else:
            yield Outcome(job.record, HandlerTimedOut(what))


def _is_of(job: Job, partitions: Collection[Partition]) -> bool:
    return job.record.read_from.topic_partition in partitions
