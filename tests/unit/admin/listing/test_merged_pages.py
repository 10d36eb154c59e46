"""Pages of several instances become one list: the union of their records, in order, each once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.admin.listing import add_pages, cursor_of, cut_page
from proxy.admin.models import PendingRecord, RecordPage

Place = tuple[int, int, int]
INSTANCES = 3
PLACES = st.sets(
    st.tuples(st.integers(0, 9), st.integers(0, 5), st.integers(0, 9)), max_size=40
).map(sorted)
"""Partition n is at instance n modulo INSTANCES."""


def record(place: Place) -> PendingRecord:
    origin = "ingress/{1}/{2}".format(*place)
    return PendingRecord(
        origin=origin,
        id=None,
        due=1,
        fires=place[0],
        target="t",
        bytes=1,
        why="scheduled",
        attempt=0,
        reason=None,
    )


def page_of(places: list[Place], after: Place, limit: int, seen: int) -> RecordPage:
    """Return the page of one instance. It had time to see only some records."""
    left = [place for place in places if place > after]
    shown = left[: min(limit, seen)]
    is_whole = len(shown) == len(left) and len(shown) < limit
    end = shown[-1] if shown else after
    return RecordPage(
        records=[record(place) for place in shown],
        cursor=None if is_whole else cursor_of(end),
        cursors=[cursor_of(place) for place in shown],
        partitions=sorted({place[1] for place in places}),
    )


@given(PLACES, st.integers(1, 12), st.lists(st.integers(1, 12), min_size=1, max_size=5))
def test_the_union_of_all_instances_is_listed_in_order_and_each_record_once(
    places: list[Place], limit: int, seen: list[int]
) -> None:
    """Merged pages hold the union of all instances' records in order, at most `limit` on each page,
    and each record once, although an instance may stop a page early."""
    after, listed, pages = (-1, 0, 0), list[str](), 0
    while True:
        merged: RecordPage | None = None
        for instance in range(INSTANCES):
            own = [place for place in places if place[1] % INSTANCES == instance]
            page = page_of(own, after, limit, seen[(pages + instance) % len(seen)])
            merged = page if merged is None else add_pages(merged, page)
        assert merged is not None
        merged = cut_page(merged, {"limit": str(limit)})
        assert len(merged.records) <= limit
        assert "cursors" not in merged.model_dump(exclude_unset=True)
        listed += [one.origin for one in merged.records]
        pages += 1
        if merged.cursor is None:
            break
        assert pages <= 200
        _, *numbers = map(int, merged.cursor.split("."))
        after = (numbers[0], numbers[1], numbers[2])
    assert listed == [record(place).origin for place in places]


def test_a_record_that_two_instances_list_is_listed_once() -> None:
    one, other = (page_of([(1, 0, 1), (2, 0, 2)], (-1, 0, 0), 10, 10) for _ in range(2))
    assert len(cut_page(add_pages(one, other), {}).records) == 2
