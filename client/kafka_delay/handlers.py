"""Parallel calls of handlers. Each key is handled in order, each call has a time limit."""

import asyncio
import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Collection, Hashable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from inspect import iscoroutine
from math import inf
from typing import Final, Protocol, TypeAlias

from kafka_delay.errors import HandlersHang
from kafka_delay.kafka import Partition
from kafka_delay.retries import HandlerTimedOut, Received, described

FEW_WAITING: Final = 50
"""When at most this many records wait for a handler, the polling thread is woken to read more."""
SAY_EVERY_S: Final = 60.0
"""Interval of log lines while no handler begins or ends."""
BEGINS_WITHIN_S: Final = 10.0
"""A free handler begins within this time, even on a slow machine."""
CANCELLED_WITHIN_S: Final = 1.0
"""The time in which a cancelled task should end."""

Handler: TypeAlias = Callable[[Received], object]
AsyncHandler: TypeAlias = Callable[[Received], Awaitable[object]]
KeyOf: TypeAlias = Callable[[Received], Hashable]
"""Returns the key of a record. Records with equal keys are handled one after the other."""
Result: TypeAlias = tuple[Received, BaseException | None]
"""A record whose handler has ended, and the exception.

After a failure, call `release` or `suspend`. Until then no other record of its key begins.
"""

log = logging.getLogger("kafka_delay")


class AwaitedWasCancelled(Exception):
    """A handler awaited a task that other code has cancelled."""


@dataclass(eq=False, slots=True)
class Job:
    """A record to be handled."""

    record: Received
    number: int = 0
    """Jobs are handled in the order of their numbers."""
    due_s: float = 0.0
    """The time at which a suspended job may begin."""
    started_s: float = 0.0
    is_dropped: bool = False
    """Whether the partition was revoked. Then only an error that ends the consumer is reported."""

    @property
    def partition(self) -> Partition:
        return self.record.read_from.topic_partition

    def __lt__(self, other: "Job") -> bool:
        return self.number < other.number


class Runner(Protocol):
    """A caller of handlers, which takes jobs and ends them. Its methods do not block."""

    def wake(self, jobs: "Handling") -> None:
        """Take jobs, if there are some."""

    def give_up(self, job: Job) -> None:
        """Stop waiting for a job. Its handler may still run."""

    def close(self) -> None:
        """Take no more jobs."""


def by_key(record: Received) -> Hashable:
    """Return the record's key. A record without a key gets a key that no other record has."""
    return record.read_from if record.key is None else record.key


def by_key_or_partition(record: Received) -> Hashable:
    """Return the record's key. Records without a key have their partition as key."""
    return record.read_from.topic_partition if record.key is None else record.key


class Handling:
    """The records that were read: queued, suspended, at work, or ended. Thread-safe.

    Records are handled in the order of reading.
    A suspended record has failed, and waits for its next delivery attempt (orderly mode only).
    Until then the other records of its key wait, too. When it may begin, it goes first.
    A record queued behind another of its key does not count as waiting. Otherwise the records
    of one key could stop the reading of all other keys.
    No handler begins while `may_begin` returns False.
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
        self._may_begin, self._now_s, self._key_of = may_begin, now_s, key_of
        self._changed = threading.Condition()
        """Guards the fields below, and wakes the polling thread."""
        self._queues: dict[Hashable, deque[Job]] = {}
        """The jobs of each key. The first one is ready, suspended, at work, or has failed."""
        self._ready: list[Job] = []
        self._suspended: set[Job] = set()
        self._at_work: dict[Job, None] = {}
        self._given_up: dict[Job, float] = {}
        """Jobs that still run after their timeout, and the time of the timeout."""
        self._ended: list[Result] = []
        self._added = self._put_first = 0
        self.waiting_bytes = 0
        self.behind = 0
        """Number of jobs behind their key's first job. Jobs behind a suspended job do not count."""
        self.held_bytes = Counter[Partition]()
        """Bytes of suspended jobs, and of jobs queued behind a job of their key."""
        self._is_over = False
        self._moved_s = self._said_s = now_s()
        """`_moved_s`: when a handler last began or ended, or no record waited. `_said_s`: when a
        log line last warned that no handler begins or ends."""
        self._idle_since_s: float | None = None
        """Since when records are ready and no handler is at work. Otherwise None."""

    @property
    def waiting(self) -> int:
        """Return the number of records that are ready for a handler."""
        return len(self._ready)

    @property
    def is_idle(self) -> bool:
        """Return whether no record is ready, at work, or ended."""
        with self._changed:
            return not (self._ready or self._at_work or self._ended)

    @property
    def hanging(self) -> int:
        """Return the number of handlers that still run after their timeout."""
        return len(self._given_up)

    def raise_if_too_many_hang(self, most: int) -> None:
        """Raise HandlersHang if more handlers than `most` still run after their timeout.

        Handlers that were just cancelled do not count yet.
        """
        with self._changed:
            before_s = self._now_s() - CANCELLED_WITHIN_S
            hanging = sum(since_s <= before_s for since_s in self._given_up.values())
        if hanging > most:
            raise HandlersHang(hanging, f"more than max_hanging={most}")

    def raise_if_none_begins(self) -> None:
        """Raise HandlersHang if records have been ready for too long and no handler begins."""
        long_s = max(self._timeout_s, BEGINS_WITHIN_S)
        with self._changed:
            since_s = self._idle_since_s
            is_idle_too_long = since_s is not None and self._now_s() - since_s >= long_s
        if is_idle_too_long:
            raise HandlersHang(self.hanging, "one of them blocks the event loop")

    def is_at_work(self, partitions: Collection[Partition] | None = None) -> bool:
        """Return whether a record is at work, or its result is not reported yet.

        Only records of `partitions` count, if they are given.
        """
        with self._changed:
            records = [record for record, _ in self._ended]
            records += [job.record for job in self._at_work if not job.is_dropped]
        return any(partitions is None or _is_of(record, partitions) for record in records)

    def due_within_s(self) -> float:
        """Return the seconds until the next suspended record may begin, or infinity."""
        with self._changed:
            due_s = min((job.due_s for job in self._suspended), default=inf)
        return max(0.0, due_s - self._now_s())

    def crowded(self, most_bytes: int) -> set[Partition]:
        """Return the partitions whose suspended and queued records have at least `most_bytes`."""
        with self._changed:
            held = self.held_bytes.items()
            return {partition for partition, held_bytes in held if held_bytes >= most_bytes}

    def add(self, record: Received) -> None:
        with self._changed:
            self._added += 1
            job = Job(record, self._added)
            queue = self._queues.setdefault(self._key_of(record), deque())
            queue.append(job)
            self._enqueued(job, queue)

    def release(self, record: Received) -> None:
        """Free the key of a failed record, so that its next record may begin."""
        with self._changed:
            self._free_key(record)

    def suspend(self, record: Received, wait_s: float) -> None:
        """Handle a failed record again after `wait_s`. Other records of its key wait until then."""
        with self._changed:
            self._put_first -= 1
            job = Job(record, self._put_first, self._now_s() + wait_s)
            queue = self._queues[self._key_of(record)]
            queue[0] = job
            self._suspended.add(job)
            self.behind -= len(queue) - 1
            self._hold(job, 1)

    def resume(self) -> None:
        """Make suspended records ready once they are due."""
        with self._changed:
            now_s = self._now_s()
            for job in [job for job in self._suspended if job.due_s <= now_s]:
                self._suspended.discard(job)
                self.behind += len(self._queues[self._key_of(job.record)]) - 1
                self._hold(job, -1)
                self._make_ready(job)

    def wake(self) -> None:
        if self._ready and len(self._at_work) < self._parallel:
            self._runner.wake(self)

    def take(self) -> Job | None:
        """Return the next job, or None if no job is ready or `parallel` jobs are at work."""
        with self._changed:
            is_enough = self._is_over or len(self._at_work) >= self._parallel
            if is_enough or not self._ready or not self._may_begin():
                return None
            job = heappop(self._ready)
            self.waiting_bytes -= job.record.size_bytes
            self._at_work[job] = None
            job.started_s = self._moved_s = self._now_s()
            self._idle_since_s = None
            return job

    def end(self, job: Job, error: BaseException | None) -> bool:
        """Note that a handler has ended. Return False if it had been given up."""
        with self._changed:
            self._moved_s = self._now_s()
            was_given_up = job in self._given_up
            is_wanted = not was_given_up and (_ends_run(error) or not job.is_dropped)
            if was_given_up:
                del self._given_up[job]
            else:
                del self._at_work[job]
                if error is None or job.is_dropped:
                    self._free_key(job.record)
                self._is_over |= _ends_run(error)
            if is_wanted:
                self._ended.append((job.record, error))
            if error is not None or self._are_few:
                self._changed.notify_all()
        if not is_wanted:
            log.warning(
                "%s: its handler has ended too late, after %.1f s (%s); its result is ignored",
                job.record.read_from,
                self._now_s() - job.started_s,
                "returned" if error is None else described(error),
            )
        return not was_given_up

    def results(self, wait_s: float) -> list[Result]:
        """Return the records whose handlers ended or timed out. Wait at most `wait_s` for one."""
        with self._changed:
            has_enough = self._ended and self._are_few
            if wait_s and self._at_work and not has_enough:
                self._changed.wait(wait_s)
            ended, self._ended = self._ended, []
            now_s = self._now_s()
            for job in list(self._at_work):
                if now_s - job.started_s >= self._timeout_s:
                    ended += self._give_up(job, now_s)
            self._look_whether_it_moves(now_s)
        self.wake()
        return ended

    def drop(self, partitions: Collection[Partition]) -> None:
        """Forget all records of some partitions, but keep errors that end the consumer."""
        self.drop_waiting(partitions)
        with self._changed:
            ended, self._ended = self._ended, []
            for record, error in ended:
                if _ends_run(error) or not _is_of(record, partitions):
                    self._ended.append((record, error))
                elif error is not None:
                    self._free_key(record)
            for job in self._at_work:
                job.is_dropped = job.is_dropped or _is_of(job.record, partitions)

    def drop_waiting(self, partitions: Collection[Partition]) -> None:
        """Forget all records of some partitions whose handlers have not begun."""
        with self._changed:
            idle = self._suspended.union(self._ready)
            queues, self._queues, self._ready = self._queues, {}, []
            self.waiting_bytes = self.behind = 0
            self.held_bytes.clear()
            self._suspended = {job for job in self._suspended if job.partition not in partitions}
            for job in self._suspended:
                self._hold(job, 1)
            for key, jobs in queues.items():
                queue = deque[Job]()
                for job in jobs:
                    is_taken = job is jobs[0] and job not in idle
                    if is_taken or job.partition not in partitions:
                        queue.append(job)
                        if not is_taken:
                            self._enqueued(job, queue)
                if queue:
                    self._queues[key] = queue

    def _enqueued(self, job: Job, queue: deque[Job]) -> None:
        """Count the job that was added to a queue. If the queue has no other job, it is ready."""
        if len(queue) > 1:
            self.behind += queue[0] not in self._suspended
            self._hold(job, 1)
        elif job not in self._suspended:
            self._make_ready(job)

    def _free_key(self, record: Received) -> None:
        key = self._key_of(record)
        queue = self._queues[key]
        queue.popleft()
        if queue:
            self.behind -= 1
            self._hold(queue[0], -1)
            self._make_ready(queue[0])
        else:
            del self._queues[key]

    def _make_ready(self, job: Job) -> None:
        self.waiting_bytes += job.record.size_bytes
        heappush(self._ready, job)

    def _hold(self, job: Job, sign: int) -> None:
        self.held_bytes[job.partition] += sign * job.record.size_bytes

    @property
    def _are_few(self) -> bool:
        """Return whether so few records wait that handlers will soon be idle.

        Records queued behind another record of their key can keep one handler busy. So they count,
        too, while at most one handler is free.
        """
        feeds_all = len(self._at_work) >= self._parallel - 1
        return len(self._ready) + (self.behind if feeds_all else 0) <= FEW_WAITING

    def _look_whether_it_moves(self, now_s: float) -> None:
        is_idle = self._ready and not self._at_work
        self._idle_since_s = (self._idle_since_s or now_s) if is_idle else None
        waiting = len(self._ready) + self.behind
        if not waiting:
            self._moved_s = now_s
        if now_s - max(self._moved_s, self._said_s) < SAY_EVERY_S:
            return
        self._said_s = now_s
        log.warning(
            "for %.0f s no handler has begun or ended: %s at work, %s still running after their "
            "timeout, %s records wait; give the handler's calls a time limit",
            now_s - self._moved_s,
            len(self._at_work),
            self.hanging,
            waiting,
        )

    def _give_up(self, job: Job, now_s: float) -> list[Result]:
        del self._at_work[job]
        self._given_up[job] = now_s
        self._runner.give_up(job)
        what = f"the handler has not returned within {self._timeout_s:g} s"
        log.warning("%s: %s and may still be running", job.record.read_from, what)
        if not job.is_dropped:
            return [(job.record, HandlerTimedOut(what))]
        self._free_key(job.record)
        return []


class HandlerThreads:
    """Threads that call handlers, `parallel` at a time.

    Python cannot end a thread. A thread whose handler was given up is replaced.
    """

    def __init__(self, handler: Handler, parallel: int) -> None:
        self._handler, self._parallel = handler, parallel
        self._changed = threading.Condition()
        self._wakes = self._threads = 0
        self._is_closed = False

    def wake(self, jobs: Handling) -> None:
        while self._threads < self._parallel:
            self._threads += 1
            threading.Thread(
                target=self._serve, args=(jobs,), name="retry-handler", daemon=True
            ).start()
        self._notify()

    def give_up(self, job: Job) -> None:  # noqa: ARG002 (all threads are alike)
        self._threads -= 1

    def close(self) -> None:
        self._is_closed = True
        self._notify()

    def _notify(self) -> None:
        with self._changed:
            self._wakes += 1
            self._changed.notify_all()

    def _serve(self, jobs: Handling) -> None:
        while not self._is_closed:
            seen = self._wakes  # read before `take`, so that no wake is missed
            job = jobs.take()
            if job is None:
                with self._changed:
                    while self._wakes == seen and not self._is_closed:
                        self._changed.wait()
            elif not jobs.end(job, self._error_of(job.record)):
                return

    def _error_of(self, record: Received) -> BaseException | None:
        try:
            returned = self._handler(record)
            if iscoroutine(returned):
                returned.close()
                return TypeError(
                    "the handler returned a coroutine: only AsyncRetryConsumer awaits them"
                )
        except BaseException as error:  # noqa: BLE001 (raised again by the thread that polls)
            return error
        return None


class HandlerTasks:
    """Tasks of an event loop, one for each job. A job that is given up is cancelled."""

    def __init__(self, handler: AsyncHandler, loop: asyncio.AbstractEventLoop) -> None:
        self._handler, self._loop = handler, loop
        self._tasks: dict[Job, asyncio.Task[BaseException | None]] = {}

    def wake(self, jobs: Handling) -> None:
        self._in_loop(self._begin, jobs)

    def give_up(self, job: Job) -> None:
        self._in_loop(self._cancel, job)

    def close(self) -> None:
        self._in_loop(self.cancel_all)

    def cancel_all(self) -> None:
        for task in list(self._tasks.values()):
            task.cancel()

    def _in_loop(self, call: Callable[..., object], *given: object) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(call, *given)

    def _begin(self, jobs: Handling) -> None:
        while (job := jobs.take()) is not None:
            task = self._loop.create_task(self._error_of(job.record))
            task.add_done_callback(partial(self._end, job, jobs))
            self._tasks[job] = task

    def _cancel(self, job: Job) -> None:
        if job in self._tasks:
            self._tasks[job].cancel()

    def _end(self, job: Job, jobs: Handling, task: asyncio.Task[BaseException | None]) -> None:
        """End a job. A task that was cancelled before its first step has no result."""
        del self._tasks[job]
        jobs.end(job, asyncio.CancelledError() if task.cancelled() else task.result())
        self._begin(jobs)

    async def _error_of(self, record: Received) -> BaseException | None:
        try:
            await self._handler(record)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                return error
            raised = AwaitedWasCancelled("the handler awaited a task that others have cancelled")
            raised.__cause__ = error
            return raised
        except BaseException as error:  # noqa: BLE001 (raised again by the thread that polls)
            return error
        return None


def _ends_run(error: BaseException | None) -> bool:
    """Return whether an error ends the consumer, as SystemExit does."""
    return not isinstance(error, Exception | None)


def _is_of(record: Received, partitions: Collection[Partition]) -> bool:
    return record.read_from.topic_partition in partitions
