"""Pages merged from pieces of any size."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, count, repeat

from hypothesis import given
from hypothesis import strategies as st

from proxy.admin.listing import LEAST_PIECE, PAGE_S, Page, Place, read_page
from proxy.admin.queries import ScanPending
from proxy.scheduling.pending import END, PendingPiece, PendingRecord, Sought

BEGINNING: Place = (-1, 2**31, 0)


def record(partition: int, fires_ms: int, offset: int) -> PendingRecord:
    return PendingRecord(
        fires_ms, offset, f"t/{partition}/{offset}", None, fires_ms, "orders", 1, "scheduled"
    )


class Pieces:
    """Workers that give a few records of a few partitions at a time.

    `records` is by partition. Partitions from `served` on belong to others.
    """

    def __init__(self, records: list[list[tuple[int, int]]], at_once: int, places: int) -> None:
        self.records = [sorted(set(keys)) for keys in records]
        self.at_once, self.places, self.served = at_once, places, len(records)
        self.asked = 0
        self.most: list[int] = []

    def ask(self, query: ScanPending) -> Sequence[PendingPiece]:
        self.asked += 1
        self.most.append(query.most)
        pieces: list[PendingPiece] = []
        for partition, after in query.places[: self.places]:
            if partition < self.served:
                beyond = [key for key in self.records[partition] if key > after]
                found = [record(partition, *key) for key in beyond[: self.at_once]]
                is_all = len(beyond) <= self.at_once
                upto = END if is_all else (found[-1].fires_ms, found[-1].offset)
                pieces.append(PendingPiece(partition, found, upto))
        return pieces

    def page(self, place: Place, limit: int, now_s: Callable[[], float] = lambda: 0.0) -> Page:
        partitions = range(len(self.records))
        return read_page(self.ask, Sought(), partitions, place, limit, now_s)


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=12), max_size=4),
    st.integers(1, 5),
    st.integers(1, 4),
    st.integers(1, 9),
    st.booleans(),
)
def test_pages_hold_each_record_once_and_in_order(
    records: list[list[tuple[int, int]]], at_once: int, places: int, limit: int, is_slow: bool
) -> None:
    """Invariant: pages together hold all records by (fires, partition, offset). Pieces may be
    small, and each page's time may end as soon as each partition was asked."""
    pieces = Pieces(records, at_once, places)
    found: list[Place] = []
    place: Place | None = BEGINNING
    while place is not None:
        times = repeat(0.0) if not is_slow else chain([0.0], repeat(PAGE_S))
        page = pieces.page(place, limit, partial(next, times))
        assert page.next is None or page.next > place
        assert len(page.records) <= limit
        place = page.next
        found += [(r.fires_ms, int(r.origin.split("/")[1]), r.offset) for r in page.records]
    expected = [(ms, p, at) for p, keys in enumerate(pieces.records) for ms, at in keys]
    assert found == sorted(expected)


def test_what_a_page_reads_within_its_time_is_not_read_again() -> None:
    partitions, each, at_once = 4, 400, 20
    keys = [[(number, 0) for number in range(each)] for _ in range(partitions)]
    pieces = Pieces(keys, at_once, places=1)
    place: Place | None = BEGINNING
    while place is not None:
        times_s = (number * PAGE_S / 30 for number in count())
        place = pieces.page(place, partitions * each, partial(next, times_s)).next
    assert pieces.asked < 1.5 * partitions * each / at_once


def test_partitions_that_no_worker_serves_any_more_are_not_called_covered() -> None:
    pieces = Pieces([[(1, 1)], [(2, 2)], [(3, 3)]], at_once=5, places=3)
    pieces.served = 2
    assert pieces.page(BEGINNING, 10).partitions == [0, 1]
    pieces.served = 0
    assert pieces.page(BEGINNING, 10) == ([], None, [])


def test_a_partition_that_nobody_serves_any_more_holds_up_no_page() -> None:
    asked = 0

    def ask(query: ScanPending) -> Sequence[PendingPiece]:
        nonlocal asked
        asked += 1
        served = [(p, after) for p, after in query.places if p == 0]
        return [PendingPiece(p, [], (fires_ms + 1, 0)) for p, (fires_ms, _) in served]

    times_s = chain([0.0], repeat(PAGE_S + 1))
    page = read_page(ask, Sought(), [0, 1], BEGINNING, 10, partial(next, times_s))
    assert page.partitions == [0]
    assert asked <= 3


def test_a_partition_is_asked_for_about_what_the_page_lacks() -> None:
    keys = [(number, 0) for number in range(200)]
    pieces = Pieces([keys[:100], keys[100:]], at_once=30, places=2)
    assert len(pieces.page(BEGINNING, 40).records) == 40
    assert pieces.most == [LEAST_PIECE + 25, LEAST_PIECE + 6]
