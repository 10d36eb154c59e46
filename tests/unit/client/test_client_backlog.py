"""Which offsets may be committed, given what is handled and what is stored."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.client.place import Partition, Place
from proxy.client.request import Request
from proxy.client.retries.committing.backlog import MOST_REPEATED, Backlog
from proxy.client.retries.committing.offset_metadata import Attempt

REQUEST = Request(b"k", b"v" * 10, [("a", b"1")])
ORDERS = ("orders", 0)
MANY = 10**6


def at(offset: int, partition: int = 0) -> Place:
    return Place("orders", partition, offset)


def with_taken(*places: Place) -> Backlog:
    """A backlog of records that have been read, and no more."""
    backlog = Backlog()
    for place in places:
        assert backlog.taken(place)
    return backlog


def offsets(backlog: Backlog, *, is_stored: bool = False) -> dict[Partition, int]:
    return {one.partition: one.offset for one in backlog.positions(is_stored=is_stored)}


def metadata(backlog: Backlog) -> str | None:
    (position,) = backlog.positions()
    return position.metadata


def test_an_empty_backlog_has_nothing_to_commit() -> None:
    backlog = Backlog()
    assert not backlog
    assert (backlog.positions(), backlog.records, backlog.new_request_bytes) == ([], 0, 0)


def test_what_is_only_read_cannot_be_committed() -> None:
    backlog = with_taken(at(4), at(5))
    assert not backlog
    assert backlog.positions() == []


def test_the_offset_committed_is_the_one_behind_the_last_record() -> None:
    backlog = with_taken(at(4), at(5), at(9))
    for offset in (4, 5, 9):
        backlog.handled(at(offset))
    assert offsets(backlog) == {ORDERS: 10}
    assert metadata(backlog) is None
    assert backlog.records == 3


def test_a_record_that_is_not_done_holds_back_the_offset_and_what_is_done_behind_is_said() -> None:
    backlog = with_taken(at(4), at(5), at(6), at(7))
    backlog.handled(at(4))
    backlog.handled(at(6))
    backlog.handled(at(7))
    assert (offsets(backlog), backlog.records) == ({ORDERS: 5}, 3)
    assert metadata(backlog) == "retry-1 - 5;done 1 2"
    backlog.handled(at(5))
    assert (offsets(backlog), backlog.records) == ({ORDERS: 8}, 4)


def test_a_failed_record_is_done_once_its_request_is_stored() -> None:
    backlog = with_taken(at(4), at(5), at(6))
    backlog.failed(at(5), REQUEST)
    assert backlog.requests == [(at(5), REQUEST)]
    assert metadata(backlog) is None
    backlog.stored([at(5)])
    assert backlog.requests == []
    assert metadata(backlog) == "retry-1 - 4;done 1 1"


def test_in_one_transaction_are_the_requests_that_the_offset_can_pass() -> None:
    backlog = with_taken(at(4), at(5), at(6), at(7))
    backlog.handled(at(4))
    backlog.failed(at(5), REQUEST)
    backlog.failed(at(7), REQUEST)
    assert backlog.requests_before_end == [(at(5), REQUEST)]
    assert offsets(backlog) == {ORDERS: 5}
    assert offsets(backlog, is_stored=True) == {ORDERS: 6}


def test_what_is_settled_leaves_what_is_still_in_hand() -> None:
    backlog = with_taken(at(4), at(5), at(6))
    backlog.handled(at(4))
    backlog.failed(at(6), REQUEST)
    backlog.settled()
    assert not backlog
    assert backlog.positions() == []
    assert backlog.new_request_bytes == 0
    backlog.handled(at(5))
    assert offsets(backlog) == {ORDERS: 6}
    assert backlog.requests_before_end == [(at(6), REQUEST)]


def test_a_record_that_comes_a_second_time_is_told() -> None:
    backlog = with_taken(at(4), at(5))
    assert not backlog.taken(at(5))
    backlog.handled(at(4))
    assert not backlog.taken(at(4))
    assert backlog.taken(at(6))
    assert backlog.taken(at(4, partition=1))


def test_what_another_consumer_has_done_is_left_out_and_still_said() -> None:
    backlog = Backlog()
    backlog.restore(ORDERS, 4, "retry-1 - 4;failed 1 0:2:0;done 1 3 1 2", 12)
    taken = [offset for offset in range(4, 12) if backlog.taken(at(offset))]
    assert taken == [4, 8, 11]
    assert backlog.position(ORDERS) == 12
    assert backlog.attempts.of(at(4)) == Attempt(2, 1_000)
    backlog.handled(at(11))
    assert metadata(backlog) == "retry-1 - 4;failed 1 0:2:0;done 1 3 1 3"


def test_in_a_log_that_begins_anew_nothing_is_left_out() -> None:
    """Its offsets are those of other records."""
    backlog = Backlog()
    backlog.restore(ORDERS, 4, "retry-1 - 4;done 1 3", 8)
    assert all(backlog.taken(at(offset)) for offset in range(8))


def test_in_a_log_that_has_lost_records_nothing_is_left_out() -> None:
    backlog = Backlog()
    backlog.restore(ORDERS, 4, "retry-1 - 4;done 1 3", 7)
    assert all(backlog.taken(at(offset)) for offset in range(4, 8))


def test_while_no_broker_says_where_the_log_ends_failures_count_and_nothing_is_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    backlog = Backlog()
    backlog.restore(ORDERS, 4, "retry-1 - 4;failed 1 0:2:0;done 1 3", None)
    assert all(backlog.taken(at(offset)) for offset in range(4, 9))
    assert backlog.attempts.of(at(4)) == Attempt(2, 1_000)
    assert "not known where the log ends, so what was done behind offset 4" in caplog.text
    assert "is ignored" not in caplog.text


def test_what_another_program_has_committed_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    backlog = Backlog()
    backlog.restore(ORDERS, 4, "by another program", 9)
    assert all(backlog.taken(at(offset)) for offset in range(4, 8))
    assert "is ignored: 'by another program'" in caplog.text


def test_partitions_with_many_records_that_are_not_done_are_told() -> None:
    backlog = with_taken(*(at(offset) for offset in range(5)), at(0, partition=1))
    assert backlog.crowded(5, MANY) == {ORDERS}
    backlog.handled(at(3))
    assert backlog.crowded(5, MANY) == set()


def test_so_are_those_with_much_in_requests_that_are_not_stored() -> None:
    backlog = with_taken(at(4), at(5), at(6), at(4, partition=1))
    for place in (at(5), at(6), at(4, partition=1)):
        backlog.failed(place, REQUEST)
    assert backlog.new_request_bytes == 3 * REQUEST.size_bytes
    assert backlog.crowded(MANY, 2 * REQUEST.size_bytes) == {ORDERS}
    backlog.settled()
    assert backlog.new_request_bytes == 0
    assert backlog.crowded(MANY, 2 * REQUEST.size_bytes) == {ORDERS}
    backlog.stored([at(5)])
    assert backlog.crowded(MANY, 2 * REQUEST.size_bytes) == set()


def test_so_is_one_with_more_done_in_pieces_than_can_be_committed() -> None:
    """Until the pieces are fewer; few offsets may come again in any case."""
    backlog = with_taken(*(at(offset) for offset in range(3 * MOST_REPEATED)))
    backlog.handled(at(1))
    for most_characters in (2_000, 1_000, 500, 250, 0):
        assert backlog.shorten()
        is_little = most_characters == 0
        assert (metadata(backlog) is None) == is_little
        assert backlog.crowded(MANY, MANY) == ({ORDERS} if is_little else set())
    assert not backlog.shorten()
    backlog.handled(at(0))
    assert metadata(backlog) is None
    assert not backlog.crowded(MANY, MANY)


def test_a_request_that_is_not_stored_holds_its_own_partition_alone() -> None:
    backlog = with_taken(at(4), at(5), at(6), at(1, partition=1))
    backlog.handled(at(4))
    backlog.failed(at(5), REQUEST)
    backlog.handled(at(6))
    backlog.failed(at(1, partition=1), REQUEST)
    backlog.stored([at(1, partition=1)])
    assert offsets(backlog) == {ORDERS: 5, ("orders", 1): 2}


def test_a_record_that_waits_for_its_next_attempt_has_its_offset_committed_again() -> None:
    backlog = with_taken(at(4), at(5))
    backlog.waits(at(4), Attempt(1, 0))
    assert backlog
    assert (offsets(backlog), backlog.records) == ({ORDERS: 4}, 0)
    backlog.settled()
    assert not backlog
    assert backlog.positions() == []
    backlog.handled(at(4))
    assert offsets(backlog) == {ORDERS: 5}
    assert backlog.attempts.of(at(4)) is None


def test_a_record_that_is_given_up_keeps_its_count_until_its_request_is_stored() -> None:
    """Or after a crash in between it would be tried as often again."""
    backlog = with_taken(at(4), at(5))
    backlog.waits(at(5), Attempt(3, 1_000))
    backlog.failed(at(5), REQUEST)
    assert metadata(backlog) == "retry-1 - 4;failed 1 1:3:0"
    backlog.stored([at(5)])
    assert metadata(backlog) == "retry-1 - 4;done 1 1"


def test_a_partition_that_is_gone_has_no_failures_to_commit() -> None:
    backlog = with_taken(at(4))
    backlog.waits(at(4), Attempt(1, 0))
    backlog.drop([ORDERS])
    assert not backlog
    assert backlog.attempts.of(at(4)) is None


def test_a_partition_that_went_elsewhere_is_forgotten_with_its_requests() -> None:
    backlog = with_taken(at(4), at(5), at(6), at(7, partition=1))
    backlog.failed(at(4), REQUEST)
    backlog.failed(at(6), REQUEST)
    backlog.failed(at(7, partition=1), REQUEST)
    backlog.drop([ORDERS, ("unheard", 9)])
    assert backlog.requests == [(at(7, partition=1), REQUEST)]
    assert (backlog.records, backlog.new_request_bytes) == (1, REQUEST.size_bytes)
    backlog.drop([("orders", 1)])
    assert not backlog
    assert backlog.new_request_bytes == 0


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
    assert backlog.records == backlog.new_request_bytes == 0


KINDS = ["handled", "stored", "unstored", "in hand"]
fates = st.lists(st.tuples(st.integers(0, 2), st.sampled_from(KINDS)))


@given(fates, st.randoms(use_true_random=False))
def test_a_commit_says_of_each_record_whether_it_is_done_and_of_none_too_early(
    records: list[tuple[int, str]], order: Random
) -> None:
    """In whatever order records end, what the next consumer takes of them is what was neither
    handled nor has its request stored.
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
    backlog.stored(place for place, kind in kinds.items() if kind == "stored")
    found, begins = Backlog(), dict.fromkeys(ends, 0)
    for (topic, number), offset, text in backlog.positions():
        found.restore((topic, number), offset, text, 10**6)
        begins[number] = offset
    again = [one for one in kinds if one.offset >= begins[one.partition] and found.taken(one)]
    assert again == [place for place, kind in kinds.items() if kind in {"unstored", "in hand"}]
