"""Queries of the admin API, answered by a worker's loop between two turns."""

import math
import queue
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotInTime
from typing import Final, NamedTuple, TypeAlias

import structlog

from proxy.dispatch.hops import Moving, find_moving
from proxy.protocol.body import Headers
from proxy.scheduling.pending import Found, Sought, WaitingPiece, find_id, find_record, scan_waiting
from proxy.scheduling.shard import Shard
from storage.errors import StorageError
from storage.store import Key

MOST_WAITING: Final = 16
SCAN_S: Final = 0.001
"""Time limit of a query of many shards. The last shard may exceed it."""
REST_PER_ANSWER: Final = 40
LONGEST_REST_S: Final = 0.1
"""Rest of a busy loop, as a multiple of the answer's duration."""

log = structlog.get_logger(__name__)


class CountedShard(NamedTuple):
    """Estimated counts of a partition's records: one per edge, and one for the rest."""

    partition: int
    counts: list[int]


class PendingByTime(NamedTuple):
    """A query for `CountedShard`s: at least one, more as time permits."""

    edges_ms: tuple[int, ...]
    partitions: tuple[int, ...]


class FindId(NamedTuple):
    """A query for a `Found` of each partition with a pending record of the id."""

    ident: bytes


class FindRecord(NamedTuple):
    """A query for the `Found` of an ingress record. Serves as `proxy.protocol.body.Message`."""

    at: tuple[int, int]
    content: tuple[bytes | None, bytes | None, Headers | None]
    stamp: tuple[int, int]

    def partition(self) -> int:
        return self.at[0]

    def offset(self) -> int:
        return self.at[1]

    def key(self) -> bytes | None:
        return self.content[0]

    def value(self) -> bytes | None:
        return self.content[1]

    def headers(self) -> Headers | None:
        return self.content[2]

    def timestamp(self) -> tuple[int, int]:
        return self.stamp

    def error(self) -> None:
        return None


class FindMoving(NamedTuple):
    """A query for the `Moving` of an ingress record, none if served elsewhere."""

    record: FindRecord
    deliver_at_ms: int


class ScanPending(NamedTuple):
    """A query for `WaitingPiece`s: at least one, more as time permits."""

    places: tuple[tuple[int, Key], ...]
    sought: Sought
    most: int


Query: TypeAlias = PendingByTime | FindId | FindRecord | FindMoving | ScanPending
Answer: TypeAlias = list[CountedShard] | list[Found] | list[Moving] | list[WaitingPiece]


def answer(query: Query, shards: Mapping[int, Shard]) -> Answer:
    """Answer a query within milliseconds."""
    match query:
        case PendingByTime(edges_ms, partitions):
            return [
                CountedShard(partition, shard.store.pending_by_time(edges_ms))
                for partition, shard in _in_time(partitions, shards)
            ]
        case FindId(ident):
            found = (find_id(shard, ident) for shard in shards.values())
            return [one for one in found if one is not None]
        case FindRecord():
            shard_of = shards.get(query.partition())
            return [] if shard_of is None else [find_record(shard_of, query)]
        case FindMoving(record, deliver_at_ms):
            shard_of = shards.get(record.partition())
            return [] if shard_of is None else [find_moving(shard_of, record, deliver_at_ms)]
        case ScanPending(places, sought, most):
            beyond = dict(places)
            return [
                scan_waiting(shard, sought, beyond[partition], most)
                for partition, shard in _in_time(beyond, shards)
            ]


def _in_time(partitions: Iterable[int], shards: Mapping[int, Shard]) -> Iterator[tuple[int, Shard]]:
    until_s = time.monotonic() + SCAN_S
    for partition in partitions:
        if partition in shards:
            yield partition, shards[partition]
            if time.monotonic() > until_s:
                return


class NoAnswer(Exception):
    """A worker did not answer in time: it is starting, recovering, or blocked by the broker."""


class MailboxFull(Exception):
    """MOST_WAITING queries are queued already."""


class QueryMailbox:
    """A queue of queries for the worker's loop."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._waiting: queue.Queue[tuple[Query, Future[Answer]]] = queue.Queue(MOST_WAITING)
        self._now_s = now_s
        self._rests_until_s = -math.inf

    def ask(self, query: Query, timeout_s: float) -> Answer:
        """Return the answer. Raises NoAnswer, MailboxFull. Never called by the loop."""
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

    @property
    def is_empty(self) -> bool:
        return self._waiting.empty()

    def answer_one(
        self, find_shards: Callable[[], Mapping[int, Shard]], *, is_busy: bool = False
    ) -> None:
        """Answer the oldest query, unless the loop is busy. Raises StorageError."""
        if self._waiting.empty() or (is_busy and self._now_s() < self._rests_until_s):
            return
        began_s = self._now_s()
        self._answer_first(find_shards)
        ended_s = self._now_s()
        self._rests_until_s = ended_s + min(LONGEST_REST_S, REST_PER_ANSWER * (ended_s - began_s))

    def _answer_first(self, find_shards: Callable[[], Mapping[int, Shard]]) -> None:
        """Skip queries whose caller has gone."""
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
