"""Lists and counts of pending records, merged from small answers of the workers' loops."""

import re
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import translate
from operator import itemgetter
from typing import Final, NamedTuple

from proxy.admin.models import RecordPage
from proxy.admin.queries import PendingByTime, ScanPending, Workers
from proxy.scheduling.pending import END, PendingPiece, PendingRecord, Sought
from proxy.telemetry.status import Status, partitions_of
from storage.store import LAST_OFFSET, added

CURSOR: Final = re.compile(
    r"1\.([0-8][0-9]{18}|[0-9]{1,18})\.([0-9]{1,10})\.([0-8][0-9]{18}|[0-9]{1,18})"
)
LAST_IN_CURSOR: Final = 9 * 10**18 - 1
"""The highest offset in a cursor. It stands for LAST_OFFSET."""
BEYOND_PARTITIONS: Final = 2**31
PAGE_S: Final = 2.0
"""A page is returned after this time, even if it is not full. With a narrow filter, a full page
could take minutes."""
LEAST_PIECE: Final = 16
"""A query asks for at least this many records of each partition. A lower number would save little,
because the query itself costs as much for each partition as listing about a hundred records."""
COUNTED_WITHIN_S: Final = 20.0
AT_ONCE: Final = 1_000
DEFAULT_LIMIT: Final = 100

Place = tuple[int, int, int]
"""(fires ms, partition, offset): the order of a list."""
Ask = Callable[[ScanPending], Sequence[PendingPiece]]


def place_of(cursor: str | None, sought: Sought) -> Place:
    """Return the place after which a list continues or begins."""
    if cursor is None:
        return sought.from_ms - 1, BEYOND_PARTITIONS, 0
    fires_ms, partition, offset = _numbers(cursor)
    return fires_ms, partition, offset if offset < LAST_IN_CURSOR else LAST_OFFSET


def cursor_of(place: Place) -> str:
    """Return the text by which a client asks for the next page."""
    fires_ms, partition, offset = place
    return f"1.{fires_ms}.{partition}.{min(offset, LAST_IN_CURSOR)}"


def cursor_after(record: PendingRecord) -> str:
    """Return the cursor of a list that continues after the record."""
    return cursor_of((record.fires_ms, partition_in(record.origin), record.offset))


def partition_in(origin: str) -> int:
    """Return the partition of an origin. Raises ValueError."""
    return int(origin.rsplit("/", 2)[1])


def add_pages(one: RecordPage, other: RecordPage) -> RecordPage:
    """Merge the pages of two instances, in order. A page is complete only up to its cursor. So the
    merged page is complete up to the lower cursor, and `cut_page` drops all later records. Raises
    ValueError if a page cannot be read."""
    pairs = zip(one.cursors + other.cursors, one.records + other.records, strict=True)
    found = dict(
        sorted(((_numbers(cursor), record) for cursor, record in pairs), key=itemgetter(0))
    )
    one.cursors = [cursor_of(place) for place in found]
    one.records = list(found.values())
    ends = [cursor for cursor in (one.cursor, other.cursor) if cursor is not None]
    one.cursor = min(ends, key=_numbers, default=None)
    one.partitions += other.partitions
    return one


def cut_page(page: RecordPage, query: Mapping[str, str]) -> RecordPage:
    """Return a merged page's records up to its cursor, at most the limit of the query."""
    limit = int(query.get("limit", DEFAULT_LIMIT))
    end = (END[0], BEYOND_PARTITIONS, END[1])
    known = end if page.cursor is None else _numbers(page.cursor)
    cursors = [cursor for cursor in page.cursors if _numbers(cursor) <= known][:limit]
    page.records = page.records[: len(cursors)]
    page.cursor = cursors[-1] if len(cursors) == limit else page.cursor
    page.model_fields_set.discard("cursors")
    return page


def _numbers(cursor: str) -> Place:
    if CURSOR.fullmatch(cursor) is None:
        raise ValueError("The instance gave a cursor that cannot be read.")
    _, fires_ms, partition, offset = map(int, cursor.split("."))
    return fires_ms, partition, offset


class Page(NamedTuple):
    """One page of pending records."""

    records: list[PendingRecord]
    next: Place | None
    """The place to continue from. None at the end."""
    partitions: list[int]


class _Pieces:
    """Pieces of the partitions' pending records, from which a page is merged."""

    def __init__(self, ask: Ask, sought: Sought, partitions: Iterable[int], after: Place) -> None:
        self._ask, self._sought = ask, sought
        fires_ms, last, offset = after
        self.upto: dict[int, Place] = {}
        """Partition -> the place up to which all its records are in `found`."""
        for partition in sorted(partitions):
            of_this = offset if partition == last else LAST_OFFSET if partition < last else -1
            self.upto[partition] = fires_ms, partition, of_this
        self.unasked = set(self.upto)
        self.found: list[tuple[Place, PendingRecord]] = []

    def fetch(self, partitions: Sequence[int], needed: int) -> None:
        """Ask for the next pieces of some partitions.

        A worker answers at least for the first of its partitions. If there is no answer for the
        first of `partitions`, this partition has moved to another process, and is dropped. If there
        is no answer at all, all `partitions` are dropped."""
        places = [(partition, self.upto[partition]) for partition in partitions]
        keys = tuple((partition, (fires_ms, offset)) for partition, (fires_ms, _, offset) in places)
        most = LEAST_PIECE + 5 * needed // (4 * len(self.upto))
        pieces = self._ask(ScanPending(keys, self._sought, most))
        for piece in pieces:
            partition, (fires_ms, offset) = piece.partition, piece.upto
            self.found += [((r.fires_ms, partition, r.offset), r) for r in piece.records]
            self.upto[partition] = fires_ms, partition, offset
            self.unasked.discard(partition)
        answered = {piece.partition for piece in pieces}
        for partition in partitions[:1] if pieces else partitions:
            if partition not in answered:
                del self.upto[partition]
                self.unasked.discard(partition)


def read_page(
    ask: Ask,
    sought: Sought,
    partitions: Iterable[int],
    after: Place,
    limit: int,
    now_s: Callable[[], float] = time.monotonic,
) -> Page:
    """Return the next `limit` records, or fewer if time is up. Raises NoAnswer, MailboxFull."""
    until_s = now_s() + PAGE_S
    pieces = _Pieces(ask, sought, partitions, after)
    while pieces.unasked:
        pieces.fetch(sorted(pieces.unasked), limit)
    end = (END[0], BEYOND_PARTITIONS, END[1])
    while True:
        pieces.found.sort(key=itemgetter(0))
        last = pieces.found[limit - 1][0] if len(pieces.found) >= limit else end
        lacking = [upto for upto in pieces.upto.values() if upto[::2] < END and upto < last]
        known = min(lacking, default=last)
        records = [record for place, record in pieces.found if place <= known][:limit]
        if not lacking or now_s() >= until_s:
            break
        # A query may answer for its first partition only. The page ends where the slowest partition
        # ends, so the partition that is furthest behind comes first.
        pieces.fetch([partition for _, partition, _ in sorted(lacking)], limit - len(records))
    return Page(records, known if lacking or len(records) == limit else None, [*pieces.upto])


def all_pages(
    ask: Ask,
    sought: Sought,
    partitions: Sequence[int],
    now_s: Callable[[], float] = time.monotonic,
) -> Iterator[Page]:
    """Yield the pages of all matching records, for at most COUNTED_WITHIN_S."""
    until_s = now_s() + COUNTED_WITHIN_S
    place: Place | None = place_of(None, sought)
    while place is not None:
        page = read_page(ask, sought, partitions, place, AT_ONCE)
        yield page
        place = page.next if now_s() <= until_s else None


class CountedByTime(NamedTuple):
    """Counts of records by time."""

    counts: list[int]
    """The edges are the times of the query. The first count is of records up to the first edge.
    Each further count is of records after the previous edge, up to the next one. The last count is
    of records after the last edge."""
    cancelled: int
    """How many of the counted records were cancelled or replaced. They are counted until the time
    at which they would fire."""
    paused: int
    """How many of the counted records have paused targets."""
    is_all: bool = True
    """Whether there was time to count all records."""


def pending_by_time(
    workers: Workers, statuses: Sequence[Status], edges_ms: Sequence[int]
) -> CountedByTime:
    """Estimate the counts of pending records by fire time. Raises NoAnswer, MailboxFull."""
    counts, left = [0] * (len(edges_ms) + 1), set(partitions_of(statuses))
    while left:
        pieces = workers.ask(PendingByTime(tuple(edges_ms), tuple(sorted(left))))
        for piece in pieces:
            counts = [sum(pair) for pair in zip(counts, piece.counts, strict=True)]
        left = left - {piece.partition for piece in pieces} if pieces else set()
    cancelled = sum(shard.cancelled for status in statuses for shard in status.shards)
    patterns = sorted({pattern for status in statuses for pattern in status.paused})
    is_paused = re.compile("|".join(map(translate, patterns)) or r"(?!)").match
    by_target = added([status.pending_by_target for status in statuses]).by_name
    paused = sum(count for target, count in by_target.items() if is_paused(target))
    return CountedByTime(counts, cancelled, paused)


def dues_by_time(
    workers: Workers, statuses: Sequence[Status], targets: str, edges_ms: Sequence[int]
) -> CountedByTime:
    """Count the pending records for a pattern of targets by due. Raises NoAnswer, MailboxFull."""
    counts, paused, is_all = [0] * (len(edges_ms) + 1), 0, True
    for page in all_pages(workers.ask, Sought(targets), partitions_of(statuses)):
        is_all = page.next is None
        for record in page.records:
            if record.why != "undecided":
                counts[bisect_left(edges_ms, record.due_ms)] += 1
                paused += record.why == "paused"
    return CountedByTime(counts, 0, paused, is_all)
