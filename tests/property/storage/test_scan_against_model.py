"""Listing of a running store, page by page, against a sorted list."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from storage import memtable as due_index
from storage import rocksdb
from storage.store import LAST_OFFSET, Entry, Key
from storage.wheel import inspection as wheel_scan
from tests.property.storage.test_store_against_model import LONG_RUNS, NAMES, StoreAgainstModel

TargetFilter: TypeAlias = Callable[[str], bool] | None
FAR_MS = 2**62
FILTERS: list[TargetFilter] = [
    None,
    lambda target: target in {"t0", f"t{NAMES - 1}"},
    lambda target: target == "nobody",
]


@pytest.fixture(autouse=True, scope="module")
def bounds_that_are_met() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(wheel_scan, "MERGED_ROWS", 12)
        patched.setattr(wheel_scan, "LEAST_SCANNED_ROWS", 1)
        patched.setattr(wheel_scan, "BUDGET", 12)
        patched.setattr(rocksdb, "LOOKED_AT", 5)
        patched.setattr(due_index, "LOOKED_AT", 5)
        yield


class ScanAgainstModel(StoreAgainstModel):
    """Invariant: pages together hold each entry that is pending throughout, once and in order.
    Puts, writes, ends and reopening between pages change nothing. Each page equals the sorted list
    at its time."""

    def __init__(self) -> None:
        super().__init__()
        self.begin(None, FAR_MS, self.ended)

    def begin(self, wants: TargetFilter, until_ms: int, after: Key) -> None:
        self.wants, self.until_ms = wants, until_ms
        self.place: Key = after
        self.listed: list[Entry] = []
        self.throughout = set(self.wanted(after, (until_ms, LAST_OFFSET)))

    def wanted(self, after: Key, upto: Key) -> list[Entry]:
        beyond = [entry for entry in self.model if after < entry[:2] <= upto]
        return [entry for entry in beyond if self.wants is None or self.wants(entry[2])]

    @rule(
        max_entries=st.integers(1, 30),
        max_bytes=st.sampled_from([20, 10**6, 10**6]),
        pages=st.sampled_from([1, 2, 10, 1000]),
        tidies=st.booleans(),
    )
    def list_on(self, max_entries: int, max_bytes: int, pages: int, tidies: bool) -> None:
        end = (self.until_ms, LAST_OFFSET)
        while self.place < end and pages:
            if tidies:
                self.store.maintain(self.next_offset, 1)
            found, upto = self.store.scan(
                self.place, self.until_ms, self.wants, max_entries, max_bytes
            )
            assert found == self.wanted(self.place, upto)
            assert len(found) <= max_entries
            assert len(found) <= 1 or sum(len(entry[3]) for entry in found) <= max_bytes
            assert max(self.place, self.ended) < upto <= end or upto == end
            self.listed += found
            self.place, pages = upto, pages - 1

    @rule(
        wants=st.sampled_from(FILTERS),
        until=st.sampled_from([0, 150, 2_000, FAR_MS]),
        after=st.integers(-500, 500),
    )
    def begin_another_list(self, wants: TargetFilter, until: int, after: int) -> None:
        self.begin(wants, min(self.now_ms + until, FAR_MS), (self.now_ms + after, 7))

    @rule(delay_ms=st.integers(1, 5_000), apart_ms=st.integers(0, 200), count=st.integers(20, 60))
    def put_many_together(self, delay_ms: int, apart_ms: int, count: int) -> None:
        self.put([delay_ms + number * apart_ms for number in range(count)], 0, late=False)
        self.commit()

    @invariant()
    def what_waited_all_the_while_is_listed_once_and_in_order(self) -> None:
        if self.place >= (self.until_ms, LAST_OFFSET):
            assert self.throughout & set(self.model) <= set(self.listed)
            assert sorted(set(self.listed)) == self.listed
            self.begin(None, FAR_MS, self.ended)


class WheelScan(ScanAgainstModel):
    """Invariant: as above, for the timer wheel."""

    kind = "wheel"


class RocksScan(ScanAgainstModel):
    """Invariant: as above, for RocksDB."""

    kind = "rocksdb"


WheelScan.TestCase.settings = LONG_RUNS
RocksScan.TestCase.settings = LONG_RUNS
TestWheelScan = WheelScan.TestCase
TestRocksScan = pytest.mark.rest(RocksScan.TestCase)
