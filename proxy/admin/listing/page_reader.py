"""One page of a list: the pieces of several partitions, merged."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, cast

from proxy.admin.listing.filters import Place
from proxy.admin.query_mailbox import Answer, ScanPending
from proxy.scheduling.waiting_records import END, Sought, WaitingPiece, WaitingRecord
from storage.store import LAST_OFFSET, Key

PAGE_S: Final = 2.0
"""A page that is not full by then is given as it is: filters that fit little look at much."""

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
        places: list[tuple[Place, WaitingRecord]] = []
        while len(places) < limit:
            lacking = [p for p, upto in self._upto.items() if not self._found[p] and upto < END]
            if lacking and (self._unasked or self._now_s() < until_s):
                self._fetch(lacking)
                continue
            known, first = self._known_upto(lacking), self._first()
            if first is None or first[0] > known:
                return self._page(places, known if lacking else None)
            places.append(first)
            self._found[first[0][1]].popleft()
        return self._page(places, places[-1][0])

    def _page(self, places: list[tuple[Place, WaitingRecord]], beyond: Place | None) -> Page:
        return Page([record for _, record in places], beyond, [*self._upto])

    def _first(self) -> tuple[Place, WaitingRecord] | None:
        """The record that comes next, of those that were found."""
        heads = [(p, found[0]) for p, found in self._found.items() if found]
        return min((((r.fires_ms, p, r.offset), r) for p, r in heads), default=None)

    def _known_upto(self, lacking: Iterable[int]) -> Place:
        """Up to there everything was found that there is."""
        uptos = ((partition, self._upto[partition]) for partition in lacking)
        places = ((fires_ms, partition, offset) for partition, (fires_ms, offset) in uptos)
        return min(places, default=(*END, LAST_OFFSET))

    def _fetch(self, lacking: Sequence[int]) -> None:
        """Get the next piece of some of these; leave out those that no worker serves any more.

        A worker always gives a piece of the first that it serves: so that none came of the very
        first says that nobody serves it.
        """
        asked = sorted(lacking, key=lambda partition: partition not in self._unasked)
        query = ScanPending(tuple((p, self._upto[p]) for p in asked), self._sought)
        pieces = [cast(WaitingPiece, piece) for answer in self._ask(query) for piece in answer]
        for piece in pieces:
            self._found[piece.partition].extend(piece.records)
            self._upto[piece.partition] = piece.upto
            self._unasked.discard(piece.partition)
        is_served = any(piece.partition == asked[0] for piece in pieces)
        for partition in asked[: not is_served] if pieces else asked:
            del self._upto[partition], self._found[partition]
            self._unasked.discard(partition)


def _after(place: Place, partition: int) -> Key:
    """The key in a partition beyond which its records come after `place`."""
    fires_ms, at, offset = place
    if partition == at:
        return fires_ms, offset
    return fires_ms, LAST_OFFSET if partition < at else -1
