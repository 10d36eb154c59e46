"""Handler calls in parallel, each key in order, each within its time limit."""

import asyncio
import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from inspect import iscoroutine
from math import inf
from typing import Final, NamedTuple, Protocol, TypeAlias

from kafka_delay.errors import HandlersHang
from kafka_delay.kafka import Partition
from kafka_delay.retries import HandlerTimedOut, Received, described

FEW_WAITING: Final = 50
"""Below this the polling thread is woken."""
SAY_EVERY_S: Final = 60.0
"""Interval of log lines while nothing moves."""
BEGINS_WITHIN_S: Final = 10.0
"""Free handlers begin within this time on any machine."""
CANCELLED_WITHIN_S: Final = 1.0
"""Time for a cancelled task to end."""

Handler: TypeAlias = Callable[[Received], object]
AsyncHandler: TypeAlias = Callable[[Received], Awaitable[object]]
KeyOf: TypeAlias = Callable[[Received], Hashable]
"""Records with equal keys are handled one by one."""

log = logging.getLogger("kafka_delay")


class AwaitedWasCancelled(Exception):
    """A handler let out another task's CancelledError."""


class Outcome(NamedTuple):
    """A record whose handler has ended. After a failure it keeps its key until released or
    suspended.
    """

    record: Received
    error: BaseException | None


@dataclass(eq=False, slots=True)
class Job:
    """A record that is being handled since `started_s`."""

    record: Received
    started_s: float
    is_dropped: bool = False
    """Its partition was revoked: its end is ignored unless it ends the consumer."""


class Jobs(Protocol):
    """The source of work for callers of handlers. Thread-safe, never blocks."""

    def take(self) -> Job | None:
        """Return the next job, or None if there is none or enough are at work."""

    def end(self, job: Job, error: BaseException | None) -> bool:
        """Note that the handler has ended. Return False if it was given up before."""


class Runner(Protocol):
    """A caller of handlers. Never blocks."""

    def wake(self, jobs: Jobs) -> None:
        """Look for jobs."""

    def give_up(self, job: Job) -> None:
        """Stop waiting for this job, which may end later."""

    def close(self) -> None:
        """Take no more jobs."""


def by_key(record: Received) -> Hashable:
    """Order records by key. Records without a key are independent."""
    return record.read_from if record.key is None else record.key


def by_key_or_partition(record: Received) -> Hashable:
    """Order records by key, or by partition without a key."""
    return record.read_from.topic_partition if record.key is None else record.key


class _Waiting(NamedTuple):
    number: int
    record: Received
    due_s: float

    @property
    def partition(self) -> Partition:
        return self.record.read_from.topic_partition


class KeyOrder:
    """Records for handlers, in the order of reading.

    A suspended record keeps its key until it is due, then goes first. Records behind a key do not
    count in `records` and `size_bytes`, so one key does not block reading.
    """

    def __init__(self, key_of: KeyOf = by_key) -> None:
        self._key_of = key_of
        self._ready: list[_Waiting] = []
        self._behind: dict[Hashable, deque[_Waiting]] = {}
        """The records behind each taken, ready or suspended key."""
        self._suspended: dict[Hashable, _Waiting] = {}
        self._added = self._put_first = 0
        self.size_bytes = 0
        self.behind = 0
        """Records behind a key, unless it is suspended."""
        self.held_bytes = Counter[Partition]()
        """Bytes of suspended records and of records behind a key."""

    @property
    def records(self) -> int:
        return len(self._ready)

    def add(self, record: Received) -> None:
        self._added += 1
        self._put(_Waiting(self._added, record, 0.0))

    def next(self) -> Received | None:
        """Take the key of the first ready record and return it, or None."""
        if not self._ready:
            return None
        record = heappop(self._ready).record
        self.size_bytes -= record.size_bytes
        return record

    def done(self, record: Received) -> None:
        key = self._key_of(record)
        if behind := self._behind[key]:
            self.behind -= 1
            self._let_wait(behind.popleft())
        else:
            del self._behind[key]

    def suspend(self, record: Received, due_s: float) -> None:
        """Keep a record and its key until it is due."""
        self._put_first -= 1
        self._suspend(_Waiting(self._put_first, record, due_s))

    def resume(self, now_s: float) -> None:
        for key, one in list(self._suspended.items()):
            if one.due_s <= now_s:
                del self._suspended[key]
                self.behind += len(self._behind[key])
                self._let_wait(one)

    def first_due_s(self) -> float | None:
        return min((one.due_s for one in self._suspended.values()), default=None)

    def drop(self, partitions: Collection[Partition]) -> None:
        """Forget these partitions' records that no handler has."""
        ready, behind, suspended = self._ready, self._behind, self._suspended
        waiting = sorted([*ready, *(one for queue in behind.values() for one in queue)])
        gone = {key for key, one in suspended.items() if one.partition in partitions}
        taken = behind.keys() - {self._key_of(one.record) for one in ready} - gone
        self._ready, self._behind = [], {key: deque() for key in taken}
        self._suspended = {}
        self.size_bytes = self.behind = 0
        self.held_bytes.clear()
        for key in suspended.keys() - gone:
            self._suspend(suspended[key])
        for one in waiting:
            if one.partition not in partitions:
                self._put(one)

    def _put(self, one: _Waiting) -> None:
        key = self._key_of(one.record)
        if key in self._behind:
            self._behind[key].append(one)
            self.behind += key not in self._suspended
            self._hold(one, 1)
        else:
            self._behind[key] = deque()
            self._make_ready(one)

    def _suspend(self, one: _Waiting) -> None:
        key = self._key_of(one.record)
        self._suspended[key] = one
        self.behind -= len(self._behind[key])
        self._hold(one, 1)

    def _let_wait(self, one: _Waiting) -> None:
        self._hold(one, -1)
        self._make_ready(one)

    def _make_ready(self, one: _Waiting) -> None:
        self.size_bytes += one.record.size_bytes
        heappush(self._ready, one)

    def _hold(self, one: _Waiting, sign: int) -> None:
        self.held_bytes[one.partition] += sign * one.record.size_bytes


class Handling:
    """The records that are queued, at work, or ended. `may_begin` allows further handlers."""

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
        self._changed = threading.Condition()
        """Guards the fields below. The polling thread waits for it."""
        self._order = KeyOrder(key_of)
        self._in_hand: dict[Job, None] = {}
        self._given_up: dict[Job, float] = {}
        """Timed-out jobs that still run, and since when."""
        self._ended: list[Outcome] = []
        self._is_over = False
        self._moved_s = self._said_s = now_s()
        """Last time a handler began or ended, none was needed, or the log said so."""
        self._idle_since_s: float | None = None
        """Since when records are ready and no handler has begun."""

    @property
    def waiting(self) -> int:
        """Return the number of records that a free handler could take."""
        return self._order.records

    @property
    def waiting_bytes(self) -> int:
        return self._order.size_bytes

    @property
    def is_idle(self) -> bool:
        with self._changed:
            return not (self._order.records or self._in_hand or self._ended)

    @property
    def hanging(self) -> int:
        return len(self._given_up)

    def raise_if_too_many_hang(self, most: int) -> None:
        """Raise HandlersHang. Just cancelled handlers get time to end."""
        with self._changed:
            before_s = self._now_s() - CANCELLED_WITHIN_S
            hanging = sum(since_s <= before_s for since_s in self._given_up.values())
        if hanging > most:
            raise HandlersHang(hanging, f"more than max_hanging={most}")

    def raise_if_none_begins(self) -> None:
        """Raise HandlersHang if records wait too long and no handler runs."""
        long_s = max(self._timeout_s, BEGINS_WITHIN_S)
        with self._changed:
            since_s = self._idle_since_s
            is_idle_too_long = since_s is not None and self._now_s() - since_s >= long_s
        if is_idle_too_long:
            raise HandlersHang(self.hanging, "one of them blocks the event loop")

    def is_at_work(self, partitions: Collection[Partition] | None = None) -> bool:
        """Return whether a record of these partitions, or any, is at work or unreported."""
        with self._changed:
            records = [one.record for one in self._ended]
            records += [job.record for job in self._in_hand if not job.is_dropped]
        return any(partitions is None or _is_of(record, partitions) for record in records)

    def due_within_s(self) -> float:
        with self._changed:
            due_s = self._order.first_due_s()
        return inf if due_s is None else max(0.0, due_s - self._now_s())

    def crowded(self, most_bytes: int) -> set[Partition]:
        with self._changed:
            held = self._order.held_bytes.items()
            return {partition for partition, held_bytes in held if held_bytes >= most_bytes}

    def add(self, record: Received) -> None:
        with self._changed:
            self._order.add(record)

    def release(self, record: Received) -> None:
        with self._changed:
            self._order.done(record)

    def suspend(self, record: Received, wait_s: float) -> None:
        """Handle a failed record again after this time. Its key stays taken."""
        with self._changed:
            self._order.suspend(record, self._now_s() + wait_s)

    def resume(self) -> None:
        with self._changed:
            self._order.resume(self._now_s())

    def wake(self) -> None:
        if self._order.records and len(self._in_hand) < self._parallel:
            self._runner.wake(self)

    def take(self) -> Job | None:
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
            log.warning(
                "%s: its handler has ended too late, after %.1f s (%s); that is ignored",
                job.record.read_from,
                self._now_s() - job.started_s,
                "returned" if error is None else described(error),
            )
        return not was_given_up

    def outcomes(self, wait_s: float) -> list[Outcome]:
        """Return the records that ended or timed out, after at most `wait_s`."""
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
        """Forget these partitions' records, except errors that end the consumer."""
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
        with self._changed:
            self._order.drop(partitions)

    @property
    def _are_few(self) -> bool:
        """Return whether handlers will soon be idle. A key keeps one handler busy only."""
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


class HandlerThreads:
    """`parallel` threads that take jobs. Hanging ones cannot be killed, so they are replaced."""

    def __init__(self, handler: Handler, parallel: int) -> None:
        self._handler, self._parallel = handler, parallel
        self._changed = threading.Condition()
        self._wakes = self._threads = 0
        self._is_closed = False

    def wake(self, jobs: Jobs) -> None:
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

    def _serve(self, jobs: Jobs) -> None:
        while not self._is_closed:
            seen = self._wakes
            job = jobs.take()
            if job is None:
                self._sleep(seen)
            elif not jobs.end(job, self._error_of(job.record)):
                return

    def _sleep(self, seen: int) -> None:
        """Sleep until a wake after `seen`, which was read before the look for a job."""
        with self._changed:
            self._changed.wait_for(lambda: self._wakes != seen or self._is_closed)

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
    """A task of an event loop for each job. Given-up jobs are cancelled, but may still run."""

    def __init__(self, handler: AsyncHandler, loop: asyncio.AbstractEventLoop) -> None:
        self._handler, self._loop = handler, loop
        self._tasks: dict[Job, asyncio.Task[BaseException | None]] = {}

    def wake(self, jobs: Jobs) -> None:
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

    def _begin(self, jobs: Jobs) -> None:
        while (job := jobs.take()) is not None:
            task = self._loop.create_task(self._error_of(job.record))
            task.add_done_callback(partial(self._end, job, jobs))
            self._tasks[job] = task

    def _cancel(self, job: Job) -> None:
        if job in self._tasks:
            self._tasks[job].cancel()

    def _end(self, job: Job, jobs: Jobs, task: asyncio.Task[BaseException | None]) -> None:
        """A task that was cancelled before its first step has not begun its handler."""
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
    """Return whether an error such as SystemExit ends the consumer."""
    return not isinstance(error, Exception | None)


def _is_of(record: Received, partitions: Collection[Partition]) -> bool:
    return record.read_from.topic_partition in partitions
