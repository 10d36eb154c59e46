"""A thread in which commits are waited for, and that keeps no process alive.

The executors of the standard library join theirs when the process ends, and a call of the client
library may never return.
"""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any


class CommitThread(Executor):
    """Does what is submitted, one after the other; the thread begins with the first of it."""

    def __init__(self) -> None:
        self._work: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="commits", daemon=True)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """As any executor's."""
        if self._thread.ident is None:
            self._thread.start()
        future: Future[Any] = Future()
        self._work.put((future, partial(fn, *args, **kwargs)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002
        """Let the thread end once it has done what it has; that is not waited for."""
        self._work.put(None)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            future, call = work
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001 (raised where the result is asked for)
                future.set_exception(error)
            del work, future, call
