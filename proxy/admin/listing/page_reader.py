"""One page of a list: the pieces of several partitions, merged."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heapreplace
from typing import Final, NamedTuple, cast

from proxy.admin.listing.filters import Place
from proxy.admin.query_mailbox import Answer, ScanPending
from proxy.scheduling.pending import END, Sought, WaitingPiece, WaitingRecord
from storage.store import LAST_OFFSET, Key

PAGE_S: Final = 2.0
"""A page that is not full by then is given as it is: filters that fit little look at much."""
LEAST_PIECE: Final = 16
"""A piece costs as much as some hundred records whatever it holds: it has those of its partition
that the page probably wants, and some more."""

Ask = Callable[[ScanPending], Sequence[Answer]]


class Page(NamedTuple):
    """Records in the order of their places; beyond which place the list goes on (None: it has
    ended); which partitions it covers."""

    records: list[WaitingRecord]
    next: Place | None
    partitions: list[int]


class PageReader:
    """Asks the workers again and again, a piece at a time, so that no loop is held up for long."""

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
        """The next `limit` records, fewer if the time is up or there are no more. Raises NoAnswer,
        MailboxFull."""
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
        """The partitions of which no record is known, though there may be one."""
        return [p for p, upto in self._upto.items() if not self._found[p] and upto < END]

    def _take(self, most: int, known: Place) -> list[tuple[Place, WaitingRecord]]:
        """The first records up to `known`, or until one of the partitions has to be asked again."""
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
        """Up to there everything was found that there is."""
        uptos = ((partition, self._upto[partition]) for partition in lacking)
        places = ((fires_ms, partition, offset) for partition, (fires_ms, offset) in uptos)
        return min(places, default=(*END, LAST_OFFSET))

    def _fetch(self, lacking: Sequence[int], needed: int) -> None:
        """Get the next piece of some of these, for a page that lacks so many records; leave out
        those that no worker serves any more.

        A worker always gives a piece of the first that it serves: so that none came of the very
        first says that nobody serves it.
        """
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
    """The first record with its place, by which it is ordered: no two have the same."""
    first = found[0]
    return (first.fires_ms, partition, first.offset), first


def _after(place: Place, partition: int) -> Key:
    """The key in a partition beyond which its records come after `place`."""
    fires_ms, at, offset = place
    if partition == at:
        return fires_ms, offset
    return fires_ms, LAST_OFFSET if partition < at else -1
