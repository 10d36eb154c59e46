"""Which offsets may be committed, given what is handled and what is stored."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.client.place import Place
from proxy.client.request import Request
from proxy.client.retries.backlog import Backlog

REQUEST = Request(b"k", b"v" * 10, [("a", b"1")])


def at(offset: int, partition: int = 0) -> Place:
    return Place("orders", partition, offset)


def test_an_empty_backlog_has_nothing_to_commit() -> None:
    backlog = Backlog()
    assert not backlog
    assert (backlog.offsets(), backlog.records, backlog.request_bytes) == ({}, 0, 0)


def test_the_offset_committed_is_the_one_behind_the_last_record() -> None:
    backlog = Backlog()
    for offset in (4, 5, 9):
        backlog.handled(at(offset))
    assert backlog.offsets() == {("orders", 0): 10}
    assert backlog.records == 3


def test_a_request_that_is_not_stored_holds_its_own_partition_alone() -> None:
    backlog = Backlog()
    backlog.handled(at(4))
    backlog.failed(at(5), REQUEST)
    backlog.handled(at(6))
    backlog.failed(at(1, partition=1), REQUEST)
    assert backlog.offsets([at(5)]) == {("orders", 0): 5, ("orders", 1): 2}


def test_a_partition_whose_first_record_is_not_stored_does_not_move() -> None:
    backlog = Backlog()
    backlog.failed(at(4), REQUEST)
    backlog.handled(at(5))
    assert backlog.offsets([at(4)]) == {}


def test_stored_requests_leave_only_the_offsets_to_be_done() -> None:
    backlog = Backlog()
    backlog.failed(at(4), REQUEST)
    assert backlog.request_bytes == REQUEST.size_bytes
    backlog.stored()
    assert (backlog.requests, backlog.request_bytes) == ([], 0)
    assert backlog.offsets() == {("orders", 0): 5}


def test_a_partition_that_went_elsewhere_is_forgotten_with_its_requests() -> None:
    backlog = Backlog()
    backlog.failed(at(4), REQUEST)
    backlog.failed(at(7, partition=1), REQUEST)
    backlog.drop([("orders", 0), ("unheard", 9)])
    assert backlog.requests == [(at(7, partition=1), REQUEST)]
    assert backlog.offsets() == {("orders", 1): 8}
    assert (backlog.records, backlog.request_bytes) == (1, REQUEST.size_bytes)
    backlog.drop([("orders", 1)])
    assert not backlog


def test_cleared_it_begins_anew() -> None:
    backlog = Backlog()
    backlog.failed(at(4), REQUEST)
    backlog.clear()
    assert not backlog
    assert backlog.records == backlog.request_bytes == 0


fates = st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["handled", "stored", "unstored"])))


@given(fates)
def test_offsets_never_pass_an_unstored_record_and_leave_nothing_done_behind_it(
    records: list[tuple[int, str]],
) -> None:
    """A partition's offset is that of its first unstored record, or behind its last one."""
    backlog, ends, unstored = Backlog(), dict[int, int](), list[Place]()
    for partition, fate in records:
        place = at(ends.get(partition, 0), partition)
        ends[partition] = place.offset + 1
        if fate == "handled":
            backlog.handled(place)
        else:
            backlog.failed(place, REQUEST)
            unstored += [place] if fate == "unstored" else []
    expected = {
        ("orders", partition): min([end, *(p.offset for p in unstored if p.partition == partition)])
        for partition, end in ends.items()
    }
    moved = {name: offset for name, offset in expected.items() if offset > 0}
    assert backlog.offsets(unstored) == moved
