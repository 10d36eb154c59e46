"""Committable offsets for any set of handled and stored records."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from kafka_delay.commits import MOST_REPEATED, MOST_UNDONE, Backlog
from kafka_delay.kafka import Partition, Place
from kafka_delay.request import Request

REQUEST = Request(b"k", b"v" * 10, [("a", b"1")])
ORDERS = ("orders", 0)


def at(offset: int, partition: int = 0) -> Place:
    return Place("orders", partition, offset)


def with_taken(*places: Place) -> Backlog:
    backlog = Backlog()
    for place in places:
        assert backlog.taken(place)
    return backlog


def offsets(backlog: Backlog) -> dict[Partition, int]:
    return {one.topic_partition: one.offset for one in backlog.positions()}


def settle(backlog: Backlog) -> None:
    backlog.settled(backlog.positions())


def test_an_empty_backlog_has_nothing_to_commit() -> None:
    backlog = Backlog()
    assert not backlog
    assert (backlog.positions(), backlog.records, backlog.request_bytes) == ([], 0, 0)


def test_what_is_only_read_cannot_be_committed() -> None:
    backlog = with_taken(at(4), at(5))
    assert not backlog
    assert backlog.positions() == []


def test_the_offset_committed_is_the_one_behind_the_last_record() -> None:
    backlog = with_taken(at(4), at(5), at(9))
    for offset in (4, 5, 9):
        backlog.handled(at(offset))
    assert offsets(backlog) == {ORDERS: 10}
    assert backlog.records == 3


def test_a_record_that_is_not_done_holds_back_the_offset() -> None:
    backlog = with_taken(at(4), at(5), at(6), at(7))
    backlog.handled(at(4))
    backlog.handled(at(6))
    backlog.handled(at(7))
    assert (offsets(backlog), backlog.records) == ({ORDERS: 5}, 3)
    backlog.handled(at(5))
    assert (offsets(backlog), backlog.records) == ({ORDERS: 8}, 4)


def test_behind_a_record_that_is_not_done_there_is_nothing_to_commit() -> None:
    backlog = with_taken(at(4), at(5))
    backlog.handled(at(5))
    assert not backlog


def test_a_failed_record_is_done_once_its_request_is_stored() -> None:
    backlog = with_taken(at(4), at(5), at(6))
    backlog.failed(at(4), REQUEST)
    assert backlog
    assert (backlog.requests, backlog.positions()) == ([(at(4), REQUEST)], [])
    backlog.stored([at(4)])
    assert (backlog.requests, offsets(backlog)) == ([], {ORDERS: 5})


def test_what_is_settled_leaves_what_is_still_in_hand() -> None:
    backlog = with_taken(at(4), at(5), at(6))
    backlog.handled(at(4))
    backlog.handled(at(6))
    settle(backlog)
    assert not backlog
    assert (backlog.positions(), backlog.records) == ([], 0)
    backlog.handled(at(5))
    assert offsets(backlog) == {ORDERS: 7}


def test_a_record_that_comes_a_second_time_is_told() -> None:
    backlog = with_taken(at(4), at(5))
    assert not backlog.taken(at(5))
    backlog.handled(at(4))
    settle(backlog)
    assert not backlog.taken(at(4))
    assert backlog.taken(at(6))
    assert backlog.taken(at(4, partition=1))


def test_partitions_with_many_records_that_are_not_done_are_told() -> None:
    backlog = with_taken(*map(at, range(MOST_UNDONE)), at(0, partition=1))
    assert backlog.crowded() == {ORDERS}
    backlog.handled(at(3))
    assert backlog.crowded() == set()
    assert backlog.crowded(share=2) == {ORDERS}


def test_so_are_those_of_which_a_crash_would_repeat_many() -> None:
    backlog = with_taken(*map(at, range(MOST_REPEATED)))
    for offset in range(1, MOST_REPEATED):
        backlog.handled(at(offset))
    assert backlog.crowded() == {ORDERS}
    backlog.handled(at(0))
    assert backlog.crowded(share=2) == set()


def test_the_size_of_requests_that_are_not_stored_is_told() -> None:
    backlog = with_taken(at(4), at(4, partition=1))
    for place in (at(4), at(4, partition=1)):
        backlog.failed(place, REQUEST)
    assert backlog.request_bytes == 2 * REQUEST.size_bytes
    backlog.stored([at(4)])
    assert backlog.request_bytes == REQUEST.size_bytes


def test_a_request_that_is_not_stored_holds_its_own_partition_alone() -> None:
    backlog = with_taken(at(4), at(5), at(6), at(1, partition=1))
    backlog.handled(at(4))
    backlog.failed(at(5), REQUEST)
    backlog.handled(at(6))
    backlog.failed(at(1, partition=1), REQUEST)
    backlog.stored([at(1, partition=1)])
    assert offsets(backlog) == {ORDERS: 5, ("orders", 1): 2}


def test_a_partition_that_went_elsewhere_is_forgotten_with_its_requests() -> None:
    backlog = with_taken(at(4), at(6), at(7, partition=1))
    for place in (at(4), at(6), at(7, partition=1)):
        backlog.failed(place, REQUEST)
    backlog.drop([ORDERS, ("unheard", 9)])
    assert backlog.requests == [(at(7, partition=1), REQUEST)]
    assert backlog.request_bytes == REQUEST.size_bytes
    backlog.drop([("orders", 1)])
    assert not backlog
    assert backlog.request_bytes == 0


def test_a_partition_that_comes_back_begins_anew() -> None:
    backlog = with_taken(at(4), at(5))
    backlog.drop([ORDERS])
    assert backlog.taken(at(4))
    backlog.handled(at(4))
    assert offsets(backlog) == {ORDERS: 5}


def test_cleared_it_begins_anew() -> None:
    backlog = with_taken(at(4))
    backlog.failed(at(4), REQUEST)
    backlog.clear()
    assert not backlog
    assert backlog.records == backlog.request_bytes == 0


KINDS = ["handled", "stored", "unstored", "in hand"]
DONE = {"handled", "stored"}
fates = st.lists(st.tuples(st.integers(0, 2), st.sampled_from(KINDS)))


@given(fates, st.randoms(use_true_random=False))
def test_a_commit_stops_before_the_first_record_that_is_not_done(
    records: list[tuple[int, str]], order: Random
) -> None:
    """Invariant: commits stop at the first unfinished record, for any order of ends."""
    backlog, kinds = Backlog(), dict[Partition, list[str]]()
    for number, kind in records:
        of_partition = kinds.setdefault(("orders", number), [])
        backlog.taken(at(3 + len(of_partition), number))
        of_partition.append(kind)
    places = [
        (at(3 + n, number), kind)
        for (_, number), of_partition in kinds.items()
        for n, kind in enumerate(of_partition)
    ]
    for place, kind in order.sample(places, len(places)):
        if kind == "handled":
            backlog.handled(place)
        elif kind != "in hand":
            backlog.failed(place, REQUEST)
    backlog.stored(place for place, kind in places if kind == "stored")
    expected: dict[Partition, int] = {}
    for partition, of_partition in kinds.items():
        ended = next((n for n, k in enumerate(of_partition) if k not in DONE), len(of_partition))
        if ended:
            expected[partition] = 3 + ended
    assert offsets(backlog) == expected
