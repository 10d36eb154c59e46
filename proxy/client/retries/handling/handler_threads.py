"""Runs handlers in threads of their own, so that a slow one does not keep the consumer from
polling.
"""

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeAlias

from proxy.client.retries.handling.job import Ended, EndedJobs, Job
from proxy.client.retries.received import Received

Handler: TypeAlias = Callable[[Received], object]


class HandlerThreads:
    """A thread per job at a time, used again for the next one.

    A Python thread cannot be killed: that of a job that is given up runs on until its handler
    returns, and ends then. None keeps the process from ending.
    """

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self.ended: EndedJobs = SimpleQueue()
        self._idle: list[_HandlerThread] = []
        self._busy: dict[Job, _HandlerThread] = {}
        self._given_up: set[Job] = set()

    def start(self, job: Job) -> None:
        """Call the handler."""
        thread = self._idle.pop() if self._idle else _HandlerThread(self._handler, self.ended)
        self._busy[job] = thread
        thread.inbox.put(job)

    def give_up(self, job: Job) -> None:
        """Its thread is left to itself."""
        self._given_up.add(job)

    def release(self, job: Job) -> None:
        """Its thread is free."""
        thread = self._busy.pop(job)
        if job in self._given_up:
            self._given_up.remove(job)
            thread.inbox.put(None)
        else:
            self._idle.append(thread)

    def close(self) -> None:
        """Let all threads end, those at work once their handlers have returned."""
        for thread in [*self._idle, *self._busy.values()]:
            thread.inbox.put(None)


class _HandlerThread:
    def __init__(self, handler: Handler, ended: EndedJobs) -> None:
        self.inbox: SimpleQueue[Job | None] = SimpleQueue()
        self._handler, self._ended = handler, ended
        threading.Thread(target=self._run, name="retry-handler", daemon=True).start()

    def _run(self) -> None:
        while (job := self.inbox.get()) is not None:
            self._ended.put(Ended(job, self._error_of(job.record)))

    def _error_of(self, record: Received) -> BaseException | None:
        try:
            self._handler(record)
        except BaseException as error:  # noqa: BLE001 (raised again by the thread that polls)
            return error
        return None
