"""Disk reserve: when it is used up, and when there is enough space again."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.config.machine import AUTO_BYTES, DiskReserve
from proxy.errors import DiskTooSmall

GIB = 1 << 30
DATA = Path("data")


@pytest.mark.parametrize(
    ("wanted_bytes", "size_bytes", "reserve_bytes"),
    [
        (None, 1_000 * GIB, AUTO_BYTES),
        (None, 64 << 20, (64 << 20) // 20),
        (None, 10, 0),
        (7, 64 << 20, 7),
        (0, 64 << 20, 0),
    ],
)
def test_auto_is_a_twentieth_of_a_small_disk(
    wanted_bytes: int | None, size_bytes: int, reserve_bytes: int
) -> None:
    assert DiskReserve(wanted_bytes).of(size_bytes) == reserve_bytes


def test_more_than_the_reserve_has_to_be_free_before_reading_goes_on() -> None:
    reserve, held = DiskReserve(800), []
    for free_bytes in (800, 799, 800, 899, 900, 800, 799):
        reserve.observe(GIB, free_bytes)
        held.append(reserve.is_short)
    assert held == [False, True, True, True, False, False, True]


def test_without_a_reserve_nothing_is_held() -> None:
    reserve = DiskReserve(0)
    reserve.observe(GIB, 0)
    assert not reserve.is_short


def test_a_reserve_that_no_disk_of_this_size_has_free_is_refused() -> None:
    DiskReserve(8 * GIB).refuse_too_small(DATA, 9 * GIB, 0)
    with pytest.raises(DiskTooSmall, match="has 9 GiB in all. `disk_reserve` is 10 GiB"):
        DiskReserve(10 * GIB).refuse_too_small(DATA, 9 * GIB, 0)
    with pytest.raises(DiskTooSmall):
        DiskReserve(8 * GIB + 1).refuse_too_small(DATA, 9 * GIB, 0)


def test_a_disk_without_room_for_one_partition_is_refused() -> None:
    DiskReserve(0).refuse_too_small(DATA, 15 << 20, 15 << 20)
    for wanted_bytes, partition_bytes in ((0, (15 << 20) + 1), (9, 15 << 20)):
        with pytest.raises(DiskTooSmall, match="one partition takes 15"):
            DiskReserve(wanted_bytes).refuse_too_small(DATA, 15 << 20, partition_bytes)


@given(
    st.one_of(st.none(), st.integers(0, 1 << 50)),
    st.integers(1, 1 << 50),
    st.lists(st.floats(0, 1), min_size=1, max_size=50),
)
def test_an_accepted_reserve_never_holds_an_empty_disk_nor_changes_its_mind_in_between(
    wanted_bytes: int | None, size_bytes: int, shares: list[float]
) -> None:
    """Invariant: reading stops below the reserve, resumes at `enough`, and is stable between."""
    reserve = DiskReserve(wanted_bytes)
    try:
        reserve.refuse_too_small(DATA, size_bytes, 0)
    except DiskTooSmall:
        assert wanted_bytes is not None
        return
    for share in (*shares, 1.0):
        before, free_bytes = reserve.is_short, int(size_bytes * share)
        reserve.observe(size_bytes, free_bytes)
        is_between = reserve.of(size_bytes) <= free_bytes < reserve.enough(size_bytes)
        assert reserve.is_short == (before if is_between else free_bytes < reserve.of(size_bytes))
    assert not reserve.is_short
