"""Calls handlers in threads, so that a slow one does not keep the consumer from polling."""

import threading
from collections.abc import Callable
from inspect import iscoroutine
from typing import TypeAlias

from proxy.client.retries.handling.job import Job, Jobs
from proxy.client.retries.received import Received

Handler: TypeAlias = Callable[[Received], object]


class HandlerThreads:
    """`parallel` threads that take jobs as long as there are any, and sleep then.

    A Python thread cannot be killed: that of a job that is given up runs on until its handler
    returns, and ends then; another has taken its place. None keeps the process from ending.
    """

    def __init__(self, handler: Handler, parallel: int) -> None:
        self._handler, self._parallel = handler, parallel
        self._changed = threading.Condition()
        self._wakes = self._threads = 0
        self._is_closed = False

    def wake(self, jobs: Jobs) -> None:
        """There may be jobs to take."""
        while self._threads < self._parallel:
            self._threads += 1
            threading.Thread(
                target=self._serve, args=(jobs,), name="retry-handler", daemon=True
            ).start()
        self._notify()

    def give_up(self, job: Job) -> None:  # noqa: ARG002 (all threads are alike)
        """Its thread is left to itself, and does not count any more."""
        self._threads -= 1

    def close(self) -> None:
        """Let all threads end, those at work once their handlers have returned."""
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
        """Until somebody has woken us since `seen`, which was before we looked in vain."""
        with self._changed:
            self._changed.wait_for(lambda: self._wakes != seen or self._is_closed)

    def _error_of(self, record: Received) -> BaseException | None:
        try:
            _refuse_coroutine(self._handler(record))
        except BaseException as error:  # noqa: BLE001 (raised again by the thread that polls)
            return error
        return None


def _refuse_coroutine(returned: object) -> None:
    """Or a record would count as handled that nobody has handled."""
    if iscoroutine(returned):
        returned.close()
        raise TypeError("the handler returned a coroutine: only AsyncRetryConsumer awaits them")
