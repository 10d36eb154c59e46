"""Queries of the admin API: their way from an API call to the loops of all workers, and back.

A worker's loop takes queries from its mailbox, at most one between two turns. A worker in a child
process gets queries through a pipe. Its receiving thread puts them into the mailbox.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotInTime
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import structlog

from proxy.dispatch.hops import Moving, find_moving
from proxy.logs import Level, change_level
from proxy.protocol.body import Message
from proxy.scheduling.pending import Found, PendingPiece, Sought, find_id, find_record, scan_pending
from proxy.scheduling.shard import Shard
from storage.errors import StorageError
from storage.store import Key

ANSWER_WITHIN_S: Final = 2.0
"""A query waits at most this long for its answer. A turn of a healthy loop is much shorter."""
LEVEL_WITHIN_S: Final = 30.0
"""A new child process gets this long to confirm its log level, because it needs seconds to
start."""
MOST_WAITING: Final = 16
SCAN_S: Final = 0.001
"""After this time a query of many shards looks at no further shard."""
PAUSE_PER_ANSWER: Final = 40
"""After an answer a busy loop answers no query for this many times the answer's duration."""
LONGEST_PAUSE_S: Final = 0.1

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

log = structlog.get_logger(__name__)


class NoAnswer(Exception):
    """A worker did not answer in time: it is starting, recovering, or waits for the broker."""


class MailboxFull(Exception):
    """MOST_WAITING queries are queued already."""


class Query(Protocol[T_co]):
    """A question about a worker's shards. It can be pickled."""

    def answer(self, shards: Mapping[int, Shard]) -> Sequence[T_co]:
        """Answer within milliseconds."""


class CountedShard(NamedTuple):
    """Estimated counts of a partition's pending records by fire time. The edges are the times of
    the query. Each count is of the records after the previous edge, up to an edge. The last count
    is of records after the last edge."""

    partition: int
    counts: list[int]


class PendingByTime(NamedTuple):
    """Count the pending records of some partitions. The first partition that the worker has is
    always counted. The others are counted until SCAN_S have passed."""

    edges_ms: tuple[int, ...]
    partitions: tuple[int, ...]

    def answer(self, shards: Mapping[int, Shard]) -> Sequence[CountedShard]:
        return [
            CountedShard(partition, shard.store.pending_by_time(self.edges_ms))
            for partition, shard in _in_time(self.partitions, shards)
        ]


class ScanPending(NamedTuple):
    """List the next pending records of some partitions. The first partition that the worker has is
    always listed. The others are listed until SCAN_S have passed."""

    places: tuple[tuple[int, Key], ...]
    sought: Sought
    most: int

    def answer(self, shards: Mapping[int, Shard]) -> Sequence[PendingPiece]:
        beyond = dict(self.places)
        return [
            scan_pending(shard, self.sought, beyond[partition], self.most)
            for partition, shard in _in_time(beyond, shards)
        ]


def _in_time(partitions: Iterable[int], shards: Mapping[int, Shard]) -> Iterator[tuple[int, Shard]]:
    until_s = time.monotonic() + SCAN_S
    for partition in partitions:
        if partition in shards:
            yield partition, shards[partition]
            if time.monotonic() > until_s:
                return


class FindId(NamedTuple):
    """Find the pending record with the id in each partition."""

    ident: bytes

    def answer(self, shards: Mapping[int, Shard]) -> Sequence[Found]:
        found = (find_id(shard, self.ident) for shard in shards.values())
        return [one for one in found if one is not None]


class FindRecord(NamedTuple):
    """Find the state of an ingress record."""

    record: Message

    def answer(self, shards: Mapping[int, Shard]) -> Sequence[Found]:
        shard = shards.get(self.record.partition())
        return [] if shard is None else [find_record(shard, self.record)]


class FindMove(NamedTuple):
    """Find out whether an ingress record can be moved, and make the record that moves it."""

    record: Message
    deliver_at_ms: int

    def answer(self, shards: Mapping[int, Shard]) -> Sequence[Moving]:
        shard = shards.get(self.record.partition())
        return [] if shard is None else [find_moving(shard, self.record, self.deliver_at_ms)]


class NextOffsets(NamedTuple):
    """Return each partition with its next offset. All records before it are committed."""

    def answer(self, shards: Mapping[int, Shard]) -> Sequence[tuple[int, int]]:
        return [(number, shard.position.next_offset) for number, shard in shards.items()]


class FindMoves(NamedTuple):
    """FindMove for several records of one partition. Each answer also has the record's new time.
    The first record always gets an answer. The others are answered until SCAN_S have passed. With
    `later_ms` the new time is the due plus `later_ms`."""

    partition: int
    records: tuple[Message, ...]
    deliver_at_ms: int
    later_ms: int | None

    def answer(self, shards: Mapping[int, Shard]) -> Sequence[tuple[int, Moving]]:
        found, until_s = list[tuple[int, Moving]](), time.monotonic() + SCAN_S
        for record in self.records if self.partition in shards else ():
            shard, at_ms = shards[self.partition], self.deliver_at_ms
            if self.later_ms is not None:
                at_ms = (find_record(shard, record).due_ms or 0) + self.later_ms
            found.append((at_ms, find_moving(shard, record, at_ms)))
            if time.monotonic() > until_s:
                break
        return found


class QueryMailbox:
    """Queue of queries for the worker's loop."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._waiting: queue.Queue[tuple[Query[Any], Future[Any]]] = queue.Queue(MOST_WAITING)
        self._now_s = now_s
        self._no_answer_until_s = -math.inf

    def ask(self, query: Query[T], timeout_s: float) -> Sequence[T]:
        """Return the answer. Raises NoAnswer, MailboxFull. The loop itself must not call this."""
        future: Future[Sequence[T]] = Future()
        try:
            self._waiting.put_nowait((query, future))
        except queue.Full:
            raise MailboxFull from None
        try:
            return future.result(timeout_s)
        except NotInTime:
            future.cancel()
            raise NoAnswer from None

    @property
    def is_empty(self) -> bool:
        return self._waiting.empty()

    def answer_one(
        self, find_shards: Callable[[], Mapping[int, Shard]], *, is_busy: bool = False
    ) -> None:
        """Answer the oldest query. A busy loop answers only after a pause. Raises StorageError."""
        began_s = self._now_s()
        if is_busy and began_s < self._no_answer_until_s:
            return
        while not self._waiting.empty():
            query, future = self._waiting.get_nowait()
            if future.set_running_or_notify_cancel():  # else its caller has gone
                _answer(query, future, find_shards)
                break
        ended_s = self._now_s()
        pause_s = min(LONGEST_PAUSE_S, PAUSE_PER_ANSWER * (ended_s - began_s))
        self._no_answer_until_s = ended_s + pause_s


def _answer(
    query: Query[Any], future: Future[Any], find_shards: Callable[[], Mapping[int, Shard]]
) -> None:
    try:
        future.set_result(query.answer(find_shards()))
    except StorageError as damaged:
        future.set_exception(NoAnswer(str(damaged)))
        raise
    except Exception as error:
        log.exception("a query of the admin API went wrong", query=query)
        future.set_exception(NoAnswer(str(error)))


class SetLevel(NamedTuple):
    """Set the log level of a child process. Its receiving thread does this, even while its loop is
    busy."""

    level: Level

    def answer(self, _shards: Mapping[int, Shard]) -> Sequence[None]:
        change_level(self.level)
        return []


class ChildPipe:
    """The parent's end of a pipe to one child. It carries one query at a time."""

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._number = 0

    def ask(self, query: Query[T], timeout_s: float) -> Sequence[T]:
        """Return the answer. Raises NoAnswer, MailboxFull."""
        until_s = time.monotonic() + timeout_s
        if not self._lock.acquire(timeout=max(0, timeout_s)):
            raise NoAnswer
        try:
            self._number += 1
            self._connection.send((self._number, query))
            while self._connection.poll(max(0, until_s - time.monotonic())):
                number, answer = self._connection.recv()
                if number == self._number:  # else the answer is to an abandoned query
                    if isinstance(answer, Exception):
                        raise answer
                    return answer  # type: ignore[no-any-return]
            raise NoAnswer
        except (OSError, EOFError):
            raise NoAnswer from None
        finally:
            self._lock.release()

    def close(self) -> None:
        self._connection.close()


def receive_queries(connection: Connection[Any, Any], mailbox: QueryMailbox) -> None:
    """Start the child's end: a thread that puts queries into the mailbox until the pipe closes."""

    def receive() -> None:
        with suppress(OSError, EOFError):
            while True:
                number, query = connection.recv()
                try:
                    is_for_loop = not isinstance(query, SetLevel)
                    said = mailbox.ask(query, ANSWER_WITHIN_S) if is_for_loop else query.answer({})
                except (NoAnswer, MailboxFull) as refused:
                    said = refused
                connection.send((number, said))

    threading.Thread(target=receive, name="queries", daemon=True).start()


class Workers:
    """All workers of this `run`: one worker that reads `mailbox`, or child processes with
    numbers."""

    def __init__(self, mailbox: QueryMailbox | None = None) -> None:
        self._mailbox = mailbox
        self._pipes: dict[str, ChildPipe] = {}
        self._level: Level | None = None

    def add(self, worker: str, connection: Connection[Any, Any]) -> None:
        """Add a new child. It may replace a child of the same number that has ended."""
        if worker in self._pipes:
            self._pipes.pop(worker).close()
        pipe = self._pipes[worker] = ChildPipe(connection)
        if self._level is not None:
            threading.Thread(target=_tell, args=(pipe, self._level), daemon=True).start()

    def ask(self, query: Query[T]) -> list[T]:
        """Return the answers of all workers. Raises NoAnswer, MailboxFull."""
        if self._mailbox is not None:
            return list(self._mailbox.ask(query, ANSWER_WITHIN_S))
        return self._ask_children(query)

    def set_level(self, level: Level) -> None:
        """Set the log level of all workers. Raises NoAnswer if one does not confirm."""
        self._level = level
        change_level(level)
        self._ask_children(SetLevel(level))

    def _ask_children(self, query: Query[T]) -> list[T]:
        until_s = time.monotonic() + ANSWER_WITHIN_S
        answers = (
            pipe.ask(query, until_s - time.monotonic()) for pipe in list(self._pipes.values())
        )
        return [one for answer in answers for one in answer]


def _tell(pipe: ChildPipe, level: Level) -> None:
    with suppress(NoAnswer):
        pipe.ask(SetLevel(level), LEVEL_WITHIN_S)
