"""Pending records one by one, in order of time."""

from collections.abc import Sequence

import pytest

from proxy.admin import listing
from proxy.admin.listing import COUNTED_WITHIN_S, Page, all_pages
from proxy.scheduling.pending import Sought
from tests.support.simulation.admin_api import MadeUpApi
from tests.unit.admin.listing.test_page_reader import Pieces


def pages(times_s: Sequence[float]) -> list[Page]:
    pieces = Pieces([[(1, 1), (2, 2), (3, 3)], [(1, 1), (5, 2)]], at_once=2, places=2)
    return list(all_pages(pieces.ask, Sought(), range(2), iter(times_s).__next__))


def times_of(found: list[Page]) -> list[int]:
    return [one.fires_ms for page in found for one in page.records]


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "AT_ONCE", 2)


def test_each_record_comes_once_and_that_these_are_all_is_known_then() -> None:
    found = pages([0.0, 1.0, 2.0, 3.0])
    assert times_of(found) == [1, 1, 2, 3, 5]
    assert found[-1].next is None


def test_after_its_time_no_more_are_looked_for_and_that_is_said() -> None:
    found = pages([0.0, 1.0, COUNTED_WITHIN_S + 1])
    assert times_of(found) == [1, 1, 2, 3]
    assert found[-1].next is not None


def test_of_targets_those_are_counted_that_will_fire_by_their_own_due() -> None:
    made = MadeUpApi()
    code, said = made.ask("/pending/by-time?target=*&within=1h")
    undecided = 2
    listed = len(made.ask("/pending/records")[1]["records"])
    counts = [bucket["pending"] for bucket in said["buckets"]]
    assert (code, counts) == (200, [listed - undecided, 0])
    assert (said["paused"], said["cancelled"], said["counted_all"]) == (0, 0, True)
    assert made.ask("/pending/by-time?target=a,b")[0] == 400
