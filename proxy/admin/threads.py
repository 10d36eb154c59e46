"""Blocking calls beside the server's loop, in daemon threads."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TypeVar

from proxy.admin.problem import Problem

T = TypeVar("T")


async def in_thread(call: Callable[[], T]) -> T:
    """Run a call in a daemon thread, which does not keep the process alive."""
    done: Future[T] = Future()
    done.set_running_or_notify_cancel()

    def run() -> None:
        try:
            done.set_result(call())
        except Exception as error:  # noqa: BLE001 (raised where it is awaited)
            done.set_exception(error)

    threading.Thread(target=run, name="call", daemon=True).start()
    return await asyncio.wrap_future(done)


@contextmanager
def room_in(free: threading.BoundedSemaphore, otherwise: str) -> Iterator[None]:
    """Take one of a bounded number of places. If no place is free, raise Problem with the text
    `otherwise`."""
    if not free.acquire(blocking=False):
        raise Problem(503, "busy", otherwise)
    try:
        yield
    finally:
        free.release()
