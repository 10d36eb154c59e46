"""Queries to the workers, in this process or in child processes."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any, Final, NamedTuple, Protocol

from proxy.admin.query_mailbox import (
    Answer,
    MailboxFull,
    NoAnswer,
    Query,
    QueryMailbox,
)
from proxy.logs import Level, change_level

ANSWER_WITHIN_S: Final = 2.0
"""A healthy loop turns much faster."""


class SetLevel(NamedTuple):
    """A request to set the log level."""

    level: Level


class Refused(NamedTuple):
    """A worker's refusal to answer."""

    is_mailbox_full: bool


class Workers(Protocol):
    """All workers of this `run`."""

    def ask(self, query: Query) -> Sequence[Answer]:
        """Return the answer of each worker. Raises NoAnswer, MailboxFull."""

    def set_level(self, level: Level) -> None:
        """Set the log level of all workers. Raises NoAnswer if one does not confirm."""


class ThisWorker:
    """The only worker, in this process."""

    def __init__(self, mailbox: QueryMailbox) -> None:
        self._mailbox = mailbox

    def ask(self, query: Query) -> Sequence[Answer]:
        return [self._mailbox.ask(query, ANSWER_WITHIN_S)]

    def set_level(self, level: Level) -> None:
        change_level(level)


class ChildPipe:
    """The parent's end of a pipe to one child. One query at a time."""

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._number = 0

    def ask(self, query: Query | SetLevel, until_s: float) -> Answer:
        if not self._lock.acquire(timeout=max(0, until_s - time.monotonic())):
            raise NoAnswer
        try:
            return self._ask(query, until_s)
        except (OSError, EOFError):
            raise NoAnswer from None
        finally:
            self._lock.release()

    def close(self) -> None:
        self._connection.close()

    def _ask(self, query: Query | SetLevel, until_s: float) -> Answer:
        self._number += 1
        self._connection.send((self._number, query))
        while self._connection.poll(max(0, until_s - time.monotonic())):
            number, answer = self._connection.recv()
            if number == self._number:  # else it answers an abandoned query
                if isinstance(answer, Refused):
                    raise MailboxFull if answer.is_mailbox_full else NoAnswer
                return answer  # type: ignore[no-any-return]
        raise NoAnswer


class ChildWorkers:
    """The workers in child processes, by number."""

    def __init__(self) -> None:
        self._pipes: dict[str, ChildPipe] = {}
        self._level: Level | None = None

    def add(self, worker: str, connection: Connection[Any, Any]) -> None:
        gone = self._pipes.pop(worker, None)
        if gone is not None:
            gone.close()
        pipe = self._pipes[worker] = ChildPipe(connection)
        if self._level is not None:
            threading.Thread(target=_tell, args=(pipe, self._level), daemon=True).start()

    def ask(self, query: Query) -> Sequence[Answer]:
        until_s = time.monotonic() + ANSWER_WITHIN_S
        return [pipe.ask(query, until_s) for pipe in list(self._pipes.values())]

    def set_level(self, level: Level) -> None:
        self._level = level
        change_level(level)
        until_s = time.monotonic() + ANSWER_WITHIN_S
        for pipe in list(self._pipes.values()):
            pipe.ask(SetLevel(level), until_s)


def _tell(pipe: ChildPipe, level: Level) -> None:
    try:
        pipe.ask(SetLevel(level), time.monotonic() + 30)
    except NoAnswer:
        return


class QueryReceiver:
    """The child's end: a thread that brings queries to the mailbox until the pipe closes."""

    def __init__(self, connection: Connection[Any, Any], mailbox: QueryMailbox) -> None:
        self._connection, self._mailbox = connection, mailbox
        threading.Thread(target=self._run, name="queries", daemon=True).start()

    def _run(self) -> None:
        try:
            while True:
                number, query = self._connection.recv()
                self._connection.send((number, self._answer(query)))
        except (OSError, EOFError):
            return

    def _answer(self, query: Query | SetLevel) -> Answer | Refused:
        if isinstance(query, SetLevel):
            change_level(query.level)
            return []
        try:
            return self._mailbox.ask(query, ANSWER_WITHIN_S)
        except (NoAnswer, MailboxFull) as refused:
            return Refused(isinstance(refused, MailboxFull))
