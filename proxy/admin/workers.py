"""The way to the workers: the one in this process, or several in processes of their own."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from proxy.admin.questions import Answer, Desk, NoAnswer, Question, TooMany
from proxy.logs import Level, change_level

ANSWER_WITHIN_S: Final = 2.0
"""Longer than a loop stands still while all is well."""


class SetLevel(NamedTuple):
    """Log from this level on."""

    level: Level


class Refused(NamedTuple):
    """No answer; whether because too many questions wait."""

    is_too_many: bool


Asked: TypeAlias = tuple[int, Question | SetLevel]
Said: TypeAlias = tuple[int, Answer | Refused]


class Workers(Protocol):
    """All workers of this `run`."""

    def ask(self, question: Question) -> Sequence[Answer]:
        """The answer of each. Raises NoAnswer, TooMany."""

    def set_level(self, level: Level) -> None:
        """Let all log from this level on. Raises NoAnswer where one has not heard."""


class ThisWorker:
    """The only worker, in this process."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def ask(self, question: Question) -> Sequence[Answer]:
        """See `Workers.ask`."""
        return [self._desk.ask(question, ANSWER_WITHIN_S)]

    def set_level(self, level: Level) -> None:
        """See `Workers.set_level`."""
        change_level(level)


class Line:
    """The parent's end of a pipe to one child. One question at a time."""

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._number = 0

    def ask(self, question: Question | SetLevel, until_s: float) -> Answer:
        """The child's answer. Raises NoAnswer, TooMany."""
        if not self._lock.acquire(timeout=max(0, until_s - time.monotonic())):
            raise NoAnswer
        try:
            return self._ask(question, until_s)
        except (OSError, EOFError):
            raise NoAnswer from None
        finally:
            self._lock.release()

    def close(self) -> None:
        """Hang up."""
        self._connection.close()

    def _ask(self, question: Question | SetLevel, until_s: float) -> Answer:
        self._number += 1
        self._connection.send((self._number, question))
        while self._connection.poll(max(0, until_s - time.monotonic())):
            number, said = self._connection.recv()
            if number == self._number:  # else it answers a question that is no longer waited for
                if isinstance(said, Refused):
                    raise TooMany if said.is_too_many else NoAnswer
                return said  # type: ignore[no-any-return]
        raise NoAnswer


class ChildWorkers:
    """The workers in processes of their own, by number."""

    def __init__(self) -> None:
        self._lines: dict[str, Line] = {}
        self._level: Level | None = None

    def add(self, worker: str, connection: Connection[Any, Any]) -> None:
        """Talk to a child that was just started, maybe in place of one that has died."""
        gone = self._lines.pop(worker, None)
        if gone is not None:
            gone.close()
        line = self._lines[worker] = Line(connection)
        if self._level is not None:
            threading.Thread(target=_tell, args=(line, self._level), daemon=True).start()

    def ask(self, question: Question) -> Sequence[Answer]:
        """See `Workers.ask`."""
        until_s = time.monotonic() + ANSWER_WITHIN_S
        return [line.ask(question, until_s) for line in list(self._lines.values())]

    def set_level(self, level: Level) -> None:
        """See `Workers.set_level`. A child started later hears of it too."""
        self._level = level
        change_level(level)
        until_s = time.monotonic() + ANSWER_WITHIN_S
        for line in list(self._lines.values()):
            line.ask(SetLevel(level), until_s)


def _tell(line: Line, level: Level) -> None:
    try:
        line.ask(SetLevel(level), time.monotonic() + 30)
    except NoAnswer:
        return


class QuestionPost:
    """The child's end: a thread that takes questions to the desk until the parent hangs up."""

    def __init__(self, connection: Connection[Any, Any], desk: Desk) -> None:
        self._connection, self._desk = connection, desk
        threading.Thread(target=self._run, name="questions", daemon=True).start()

    def _run(self) -> None:
        try:
            while True:
                number, question = self._connection.recv()
                self._connection.send((number, self._said(question)))
        except (OSError, EOFError):
            return

    def _said(self, question: Question | SetLevel) -> Answer | Refused:
        if isinstance(question, SetLevel):
            change_level(question.level)
            return []
        try:
            return self._desk.ask(question, ANSWER_WITHIN_S)
        except (NoAnswer, TooMany) as refused:
            return Refused(isinstance(refused, TooMany))
