"""Lists and counts of pending records, merged from small answers of the workers' loops."""

import re
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import translate
from heapq import heapify, heappop, heapreplace
from typing import Final, NamedTuple, cast

from proxy.admin.models import pattern_of
from proxy.admin.problem import bad_request
from proxy.admin.query_mailbox import Answer, CountedShard, PendingByTime, ScanPending
from proxy.admin.workers import Workers
from proxy.scheduling.pending import END, Sought, WaitingPiece, WaitingRecord
from proxy.telemetry.status import Status, partitions_of
from storage.store import LAST_OFFSET, Key, added

CURSOR: Final = re.compile(
    r"1\.([0-8][0-9]{18}|[0-9]{1,18})\.([0-9]{1,10})\.([0-8][0-9]{18}|[0-9]{1,18})"
)
LAST_IN_CURSOR: Final = 9 * 10**18 - 1
"""Stands for the end of a millisecond."""
BEYOND_PARTITIONS: Final = 2**31

Place = tuple[int, int, int]
"""(fires ms, partition, offset): the order of a list."""


def place_of(cursor: str | None, sought: Sought) -> Place:
    """Return the place after which a list continues or begins. Raises Problem."""
    if cursor is None:
        return sought.from_ms - 1, BEYOND_PARTITIONS, 0
    found = CURSOR.fullmatch(cursor)
    if found is None:
        raise bad_request(
            "The `cursor` is none that this call has given: use it as it was, or leave it out "
            "to begin anew."
        )
    fires_ms, partition, offset = map(int, found.groups())
    return fires_ms, partition, offset if offset < LAST_IN_CURSOR else LAST_OFFSET


def cursor_of(place: Place) -> str:
    """Return the text by which a client asks for the next page."""
    fires_ms, partition, offset = place
    return f"1.{fires_ms}.{partition}.{min(offset, LAST_IN_CURSOR)}"


PAGE_S: Final = 2.0
"""A page is returned after this time, full or not: a narrow filter visits many records."""
LEAST_PIECE: Final = 16
"""A piece costs as much as about a hundred records, so small pieces do not pay."""

Ask = Callable[[ScanPending], Sequence[Answer]]


class Page(NamedTuple):
    """One page of pending records."""

    records: list[WaitingRecord]
    next: Place | None
    """The place to continue from. None at the end."""
    partitions: list[int]


class PageReader:
    """A merge of pieces of several partitions into one page."""

    def __init__(
        self,
        ask: Ask,
        sought: Sought,
        partitions: Iterable[int],
        place: Place,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask, self._sought, self._now_s = ask, sought, now_s
        self._upto = {partition: _after(place, partition) for partition in sorted(partitions)}
        self._found: dict[int, deque[WaitingRecord]] = {p: deque() for p in self._upto}
        self._unasked = set(self._upto)

    def read(self, limit: int) -> Page:
        """Return the next records, fewer when time is up. Raises NoAnswer, MailboxFull."""
        until_s = self._now_s() + PAGE_S
        records: list[WaitingRecord] = []
        last: Place | None = None
        while len(records) < limit:
            lacking = self._lacking()
            if lacking and (self._unasked or self._now_s() < until_s):
                self._fetch(lacking, limit - len(records))
                continue
            known = self._known_upto(lacking)
            taken = self._take(limit - len(records), known)
            if not taken:
                return Page(records, known if lacking else None, [*self._upto])
            records += [record for _, record in taken]
            last = taken[-1][0]
        return Page(records, last, [*self._upto])

    def _lacking(self) -> list[int]:
        return [p for p, upto in self._upto.items() if not self._found[p] and upto < END]

    def _take(self, most: int, known: Place) -> list[tuple[Place, WaitingRecord]]:
        heads = [_placed(p, found) for p, found in self._found.items() if found]
        heapify(heads)
        taken: list[tuple[Place, WaitingRecord]] = []
        while heads and len(taken) < most and heads[0][0] <= known:
            taken.append(heads[0])
            partition = heads[0][0][1]
            found = self._found[partition]
            found.popleft()
            if found:
                heapreplace(heads, _placed(partition, found))
            elif self._upto[partition] < END:
                break
            else:
                heappop(heads)
        return taken

    def _known_upto(self, lacking: Iterable[int]) -> Place:
        uptos = ((partition, self._upto[partition]) for partition in lacking)
        places = ((fires_ms, partition, offset) for partition, (fires_ms, offset) in uptos)
        return min(places, default=(*END, LAST_OFFSET))

    def _fetch(self, lacking: Sequence[int], needed: int) -> None:
        """A partition without an answer, if asked first, is not served here. It is dropped."""
        asked = sorted(lacking, key=lambda partition: partition not in self._unasked)
        places = tuple((partition, self._upto[partition]) for partition in asked)
        query = ScanPending(places, self._sought, LEAST_PIECE + 5 * needed // (4 * len(self._upto)))
        pieces = [cast(WaitingPiece, piece) for answer in self._ask(query) for piece in answer]
        for piece in pieces:
            self._found[piece.partition].extend(piece.records)
            self._upto[piece.partition] = piece.upto
            self._unasked.discard(piece.partition)
        is_served = any(piece.partition == asked[0] for piece in pieces)
        for partition in asked[: not is_served] if pieces else asked:
            del self._upto[partition], self._found[partition]
            self._unasked.discard(partition)


def _placed(partition: int, found: deque[WaitingRecord]) -> tuple[Place, WaitingRecord]:
    first = found[0]
    return (first.fires_ms, partition, first.offset), first


def _after(place: Place, partition: int) -> Key:
    fires_ms, at, offset = place
    if partition == at:
        return fires_ms, offset
    return fires_ms, LAST_OFFSET if partition < at else -1


COUNTED_WITHIN_S: Final = 20.0
AT_ONCE: Final = 1_000


class EachWaiting:
    """All matching records, for at most COUNTED_WITHIN_S. `is_all` if the end was reached."""

    def __init__(
        self,
        ask: Ask,
        sought: Sought,
        partitions: Iterable[int],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask, self._sought, self._now_s = ask, sought, now_s
        self._partitions = set(partitions)
        self.is_all = False

    def __iter__(self) -> Iterator[WaitingRecord]:
        until_s, place = self._now_s() + COUNTED_WITHIN_S, place_of(None, self._sought)
        while True:
            page = PageReader(self._ask, self._sought, self._partitions, place).read(AT_ONCE)
            yield from page.records
            self.is_all = page.next is None
            if page.next is None or self._now_s() > until_s:
                return
            place = page.next


class WaitingByTime(NamedTuple):
    """Estimated counts of records by fire time."""

    counts: list[int]
    """One for each edge, from the edge before it, and one for later records."""
    cancelled: int
    """Counted records that were cancelled or replaced. They are counted until they fire."""
    held: int
    """Counted records of paused targets."""


def waiting_by_time(
    workers: Workers, statuses: Sequence[Status], edges_ms: Sequence[int]
) -> WaitingByTime:
    """Estimate the counts. Raises NoAnswer, MailboxFull."""
    shards = [shard for status in statuses for shard in status.shards]
    counted = _counted(workers, tuple(edges_ms), partitions_of(statuses))
    columns = zip([0] * (len(edges_ms) + 1), *counted, strict=True)
    return WaitingByTime(
        [sum(column) for column in columns],
        sum(shard.cancelled for shard in shards),
        _held(statuses),
    )


class DuesByTime(NamedTuple):
    """Exact counts by due time. `is_all` if there was time for all."""

    counts: list[int]
    held: int
    is_all: bool


def dues_by_time(
    workers: Workers, statuses: Sequence[Status], targets: str, edges_ms: Sequence[int]
) -> DuesByTime:
    """Count the records for a pattern of targets. Raises Problem, NoAnswer, MailboxFull."""
    each = EachWaiting(workers.ask, Sought(pattern_of(targets)), partitions_of(statuses))
    counts, held = [0] * (len(edges_ms) + 1), 0
    for record in each:
        if record.why != "undecided":
            counts[bisect_left(edges_ms, record.due_ms)] += 1
            held += record.why == "paused"
    return DuesByTime(counts, held, each.is_all)


def _counted(
    workers: Workers, edges_ms: tuple[int, ...], partitions: Sequence[int]
) -> Iterator[list[int]]:
    left = set(partitions)
    while left:
        answers = workers.ask(PendingByTime(edges_ms, tuple(sorted(left))))
        pieces = [cast(CountedShard, piece) for answer in answers for piece in answer]
        yield from (piece.counts for piece in pieces)
        if not pieces:
            return
        left -= {piece.partition for piece in pieces}


def _held(statuses: Sequence[Status]) -> int:
    patterns = {pattern for status in statuses for pattern in status.paused}
    if not patterns:
        return 0
    is_paused = re.compile("|".join(map(translate, sorted(patterns)))).match
    counts = added([status.pending_by_target for status in statuses]).by_name
    return sum(count for target, count in counts.items() if is_paused(target))
