"""The mailbox of a worker: queries of the admin API, answered by its loop between turns."""

from __future__ import annotations

import queue
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotInTime
from typing import Final

import structlog

from proxy.admin.queries import Answer, Query, answer
from proxy.scheduling.shard import Shard
from storage.errors import StorageError

MOST_WAITING: Final = 16

log = structlog.get_logger(__name__)


class NoAnswer(Exception):
    """A worker has not answered in time: it is starting, recovering, or waits for the broker."""


class MailboxFull(Exception):
    """So many queries wait already that this one is not taken."""


class QueryMailbox:
    """Where queries wait until the worker's loop has a moment."""

    def __init__(self) -> None:
        self._waiting: queue.Queue[tuple[Query, Future[Answer]]] = queue.Queue(MOST_WAITING)

    def ask(self, query: Query, timeout_s: float) -> Answer:
        """From any thread but the loop's. Raises NoAnswer, MailboxFull."""
        future: Future[Answer] = Future()
        try:
            self._waiting.put_nowait((query, future))
        except queue.Full:
            raise MailboxFull from None
        try:
            return future.result(timeout_s)
        except NotInTime:
            future.cancel()
            raise NoAnswer from None

    def answer_one(self, find_shards: Callable[[], Mapping[int, Shard]]) -> None:
        """Called by the loop between turns: answer the query that has waited longest.

        Raises StorageError, which is for the session to mend.
        """
        while not self._waiting.empty():
            query, future = self._waiting.get_nowait()
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(answer(query, find_shards()))
                except StorageError as damaged:
                    future.set_exception(NoAnswer(str(damaged)))
                    raise
                except Exception as error:
                    log.exception("a query of the admin API went wrong", query=query)
                    future.set_exception(NoAnswer(str(error)))
                return
