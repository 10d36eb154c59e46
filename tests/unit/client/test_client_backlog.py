"""Which offsets may be committed, given what is handled and what is stored."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from proxy.client.place import Place
from proxy.client.request import Request
from proxy.client.retries.attempts import Attempt
from proxy.client.retries.backlog import Backlog

REQUEST = Request(b"k", b"v" * 10, [("a", b"1")])
ORDERS = ("orders", 0)


def at(offset: int, partition: int = 0) -> Place:
    return Place("orders", partition, offset)


def with_taken(*places: Place) -> Backlog:
    """A backlog of records that have been read, and no more."""
    backlog = Backlog()
    for place in places:
        assert backlog.taken(place)
    return backlog


def test_an_empty_backlog_has_nothing_to_commit() -> None:
    backlog = Backlog()
    assert not backlog
    assert (backlog.offsets(), backlog.records, backlog.request_bytes) == ({}, 0, 0)


def test_what_is_only_read_cannot_be_committed() -> None:
    backlog = with_taken(at(4), at(5))
    assert not backlog
    assert backlog.offsets() == {}


def test_the_offset_committed_is_the_one_behind_the_last_record() -> None:
    backlog = with_taken(at(4), at(5), at(9))
    for offset in (4, 5, 9):
        backlog.handled(at(offset))
    assert backlog.offsets() == {ORDERS: 10}
    assert backlog.records == 3


def test_a_record_that_is_not_done_holds_back_those_behind_it() -> None:
    backlog = with_taken(at(4), at(5), at(6), at(7))
    backlog.handled(at(4))
    backlog.handled(at(6))
    backlog.handled(at(7))
    assert (backlog.offsets(), backlog.records) == ({ORDERS: 5}, 1)
    backlog.handled(at(5))
    assert (backlog.offsets(), backlog.records) == ({ORDERS: 8}, 4)


def test_a_request_is_not_stored_before_its_offset_can_be_committed() -> None:
    """Or a crash in between would have the record retried twice."""
    backlog = with_taken(at(4), at(5))
    backlog.failed(at(5), REQUEST)
    assert backlog.requests == []
    assert backlog.request_bytes == REQUEST.size_bytes
    backlog.handled(at(4))
    assert backlog.requests == [(at(5), REQUEST)]
    assert backlog.offsets([at(5)]) == {ORDERS: 5}


def test_what_is_settled_leaves_what_is_still_in_hand() -> None:
    backlog = with_taken(at(4), at(5), at(6))
    backlog.handled(at(4))
    backlog.failed(at(6), REQUEST)
    backlog.settled()
    assert not backlog
    assert backlog.offsets() == {}
    assert backlog.request_bytes == REQUEST.size_bytes
    backlog.handled(at(5))
    assert backlog.offsets() == {ORDERS: 7}
    assert backlog.requests == [(at(6), REQUEST)]


def test_a_record_that_comes_a_second_time_is_told() -> None:
    backlog = with_taken(at(4), at(5))
    assert not backlog.taken(at(5))
    backlog.handled(at(4))
    assert not backlog.taken(at(4))
    assert backlog.taken(at(6))
    assert backlog.taken(at(4, partition=1))


def test_partitions_with_many_records_behind_one_are_told() -> None:
    backlog = with_taken(*(at(offset) for offset in range(5)), at(0, partition=1))
    for offset in range(1, 5):
        backlog.handled(at(offset))
    assert backlog.crowded(5) == {ORDERS}
    backlog.handled(at(0))
    assert backlog.crowded(5) == set()


def test_a_request_that_is_not_stored_holds_its_own_partition_alone() -> None:
    backlog = with_taken(at(4), at(5), at(6), at(1, partition=1))
    backlog.handled(at(4))
    backlog.failed(at(5), REQUEST)
    backlog.handled(at(6))
    backlog.failed(at(1, partition=1), REQUEST)
    assert backlog.offsets([at(5)]) == {ORDERS: 5, ("orders", 1): 2}


def test_a_partition_whose_first_record_is_not_stored_does_not_move() -> None:
    backlog = with_taken(at(4), at(5))
    backlog.failed(at(4), REQUEST)
    backlog.handled(at(5))
    assert backlog.offsets([at(4)]) == {}


def test_a_record_that_waits_for_its_next_attempt_has_its_offset_committed_again() -> None:
    backlog = with_taken(at(4), at(5))
    backlog.waits(at(4), Attempt(1, 0))
    backlog.handled(at(5))
    assert backlog
    assert (backlog.offsets(), backlog.records) == ({ORDERS: 4}, 0)
    backlog.settled()
    assert not backlog
    assert backlog.offsets() == {}
    backlog.handled(at(4))
    assert backlog.offsets() == {ORDERS: 6}
    assert backlog.attempts.of(at(4)) is None


def test_a_partition_that_is_gone_has_no_failures_to_commit() -> None:
    backlog = with_taken(at(4))
    backlog.waits(at(4), Attempt(1, 0))
    backlog.drop([ORDERS])
    assert not backlog
    assert backlog.attempts.of(at(4)) is None


def test_stored_requests_leave_only_the_offsets_to_be_done() -> None:
    backlog = with_taken(at(4))
    backlog.failed(at(4), REQUEST)
    assert backlog.request_bytes == REQUEST.size_bytes
    backlog.stored()
    assert (backlog.requests, backlog.request_bytes) == ([], 0)
    assert backlog.offsets() == {ORDERS: 5}


def test_a_partition_that_went_elsewhere_is_forgotten_with_its_requests() -> None:
    backlog = with_taken(at(4), at(5), at(6), at(7, partition=1))
    backlog.failed(at(4), REQUEST)
    backlog.failed(at(6), REQUEST)
    backlog.failed(at(7, partition=1), REQUEST)
    backlog.drop([ORDERS, ("unheard", 9)])
    assert backlog.requests == [(at(7, partition=1), REQUEST)]
    assert backlog.offsets() == {("orders", 1): 8}
    assert (backlog.records, backlog.request_bytes) == (1, REQUEST.size_bytes)
    backlog.drop([("orders", 1)])
    assert not backlog
    assert backlog.request_bytes == 0


def test_a_partition_that_comes_back_begins_anew() -> None:
    backlog = with_taken(at(4), at(5))
    backlog.drop([ORDERS])
    assert backlog.taken(at(4))
    backlog.handled(at(4))
    assert backlog.offsets() == {ORDERS: 5}


def test_cleared_it_begins_anew() -> None:
    backlog = with_taken(at(4))
    backlog.failed(at(4), REQUEST)
    backlog.clear()
    assert not backlog
    assert backlog.records == backlog.request_bytes == 0


KINDS = ["handled", "stored", "unstored", "in hand"]
fates = st.lists(st.tuples(st.integers(0, 2), st.sampled_from(KINDS)))


@given(fates, st.randoms(use_true_random=False))
def test_offsets_never_pass_an_undone_record_and_leave_nothing_done_behind_it(
    records: list[tuple[int, str]], order: Random
) -> None:
    """In whatever order records end, a partition's offset is that of its first record that is in
    hand or unstored, or behind its last one; requests are those of the records before it.
    """
    backlog, ends, kinds = Backlog(), dict[int, int](), dict[Place, str]()
    for partition, kind in records:
        place = at(ends.get(partition, 0), partition)
        ends[partition] = place.offset + 1
        kinds[place] = kind
        backlog.taken(place)
    for place in order.sample(list(kinds), len(kinds)):
        if kinds[place] == "handled":
            backlog.handled(place)
        elif kinds[place] != "in hand":
            backlog.failed(place, REQUEST)

    def reached(*held: str) -> dict[int, int]:
        stop = dict(ends)
        for place, kind in kinds.items():
            if kind in held:
                stop[place.partition] = min(stop[place.partition], place.offset)
        return stop

    unstored = [place for place, kind in kinds.items() if kind == "unstored"]
    moved = {("orders", part): end for part, end in reached("in hand", "unstored").items() if end}
    assert backlog.offsets(unstored) == moved
    before = reached("in hand")
    assert {place for place, _ in backlog.requests} == {
        place
        for place, kind in kinds.items()
        if kind in {"stored", "unstored"} and place.offset < before[place.partition]
    }
