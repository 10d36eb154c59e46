"""Calls coroutine handlers as tasks of an event loop, while another thread polls."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TypeAlias

from proxy.client.retries.handling.job import Job, Jobs
from proxy.client.retries.received import Received

AsyncHandler: TypeAlias = Callable[[Received], Awaitable[object]]


class AwaitedWasCancelled(Exception):
    """What a handler is taken to have raised that lets out the CancelledError of another task."""


class HandlerTasks:
    """A task for each job. One that is given up is cancelled, and may end even so."""

    def __init__(self, handler: AsyncHandler, loop: asyncio.AbstractEventLoop) -> None:
        self._handler, self._loop = handler, loop
        self._tasks: dict[Job, asyncio.Task[BaseException | None]] = {}

    def wake(self, jobs: Jobs) -> None:
        """There may be jobs to take."""
        self._in_loop(self._begin, jobs)

    def give_up(self, job: Job) -> None:
        """Cancel its task."""
        self._in_loop(self._cancel, job)

    def close(self) -> None:
        """Cancel what is at work."""
        self._in_loop(self.cancel_all)

    def cancel_all(self) -> None:
        """The same, for the loop's own thread."""
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
        """A task that was cancelled before its first step has not begun with its handler."""
        del self._tasks[job]
        jobs.end(job, asyncio.CancelledError() if task.cancelled() else task.result())
        self._begin(jobs)

    async def _error_of(self, record: Received) -> BaseException | None:
        try:
            await self._handler(record)
        except asyncio.CancelledError as error:
            return error if _is_cancelled() else _of_another_task(error)
        except BaseException as error:  # noqa: BLE001 (raised again by the thread that polls)
            return error
        return None


def _is_cancelled() -> bool:
    """Whether somebody has cancelled the task that runs, and not one that it awaits."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _of_another_task(error: asyncio.CancelledError) -> AwaitedWasCancelled:
    raised = AwaitedWasCancelled("the handler awaited a task that others have cancelled")
    raised.__cause__ = error
    return raised
