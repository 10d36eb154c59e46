"""Records of one key run in order, others concurrently."""

from __future__ import annotations

from math import inf
from random import Random
from unittest.mock import Mock

from hypothesis import given
from hypothesis import strategies as st

from kafka_delay.handlers import Handling, KeyOf, Runner, by_key, by_key_or_partition
from kafka_delay.kafka import Place
from kafka_delay.retries import Received


def record(offset: int, key: bytes | None = b"k", partition: int = 0) -> Received:
    place = Place("orders", partition, offset)
    return Received(place, place, 0, key, b"v", [], 0)


class Order(Handling):
    """Handling of any number of records at a time, at a time that the test sets."""

    def __init__(self, key_of: KeyOf) -> None:
        self.now_s = 0.0
        super().__init__(Mock(Runner), 1_000, 900.0, now_s=lambda: self.now_s, key_of=key_of)

    def next(self) -> Received | None:
        job = self.take()
        return None if job is None else job.record

    def resume_at(self, now_s: float) -> None:
        self.now_s = now_s
        self.resume()


def order_of(*records: Received, key_of: KeyOf = by_key) -> Order:
    order = Order(key_of)
    for one in records:
        order.add(one)
    return order


def offsets_now(order: Order) -> list[int]:
    return [one.read_from.offset for one in iter(order.next, None)]


def test_one_key_is_handled_in_order_and_others_meanwhile() -> None:
    first, second = record(0, b"a"), record(1, b"a")
    order = order_of(first, second, record(2, b"b"))
    assert offsets_now(order) == [0, 2]
    order.release(first)
    assert offsets_now(order) == [1]
    order.release(second)
    assert offsets_now(order) == []


def test_records_without_a_key_hold_up_nobody() -> None:
    assert offsets_now(order_of(record(0, None), record(1, None))) == [0, 1]


def test_a_key_is_one_key_in_whatever_topic_it_is_read() -> None:
    assert offsets_now(order_of(record(0, b"a"), record(0, b"a", partition=1))) == [0]


def test_one_at_a_time_the_order_is_that_of_reading_across_keys() -> None:
    first = record(0, b"a")
    order = order_of(first, record(1, b"a"), record(2, b"b"))
    assert order.next() == first
    order.release(first)
    assert offsets_now(order) == [1, 2]


def test_what_waits_is_counted_and_what_is_behind_a_key_apart_by_partition() -> None:
    first = record(0, b"a")
    order = order_of(first, record(1, b"a"), record(2, b"b"), record(5, b"a", 1))
    assert (order.waiting, order.waiting_bytes, order.behind) == (2, 4, 2)
    assert +order.held_bytes == {("orders", 0): 2, ("orders", 1): 2}
    offsets_now(order)
    assert (order.waiting, order.waiting_bytes, order.behind) == (0, 0, 2)
    order.release(first)
    assert (order.waiting, order.waiting_bytes, order.behind) == (1, 2, 1)
    assert +order.held_bytes == {("orders", 1): 2}


def test_of_a_partition_that_is_gone_nothing_waits_and_its_key_goes_on_elsewhere() -> None:
    held = record(0, b"a")
    order = order_of(held, record(1, b"b"), record(5, b"b", 1), record(2, b"a"), record(6, b"a", 1))
    assert order.next() == held
    order.drop_waiting([("orders", 0)])
    assert (order.waiting, order.waiting_bytes, order.behind) == (1, 2, 1)
    assert +order.held_bytes == {("orders", 1): 2}
    assert offsets_now(order) == [5]
    order.release(held)
    assert offsets_now(order) == [6]


def suspended_order() -> Order:
    order = order_of(record(0, b"a"), record(1, b"a"), record(2, b"b"), record(3, b"a"))
    first = order.next()
    assert first is not None
    order.suspend(first, 5.0)
    return order


def test_a_suspended_record_holds_its_key_alone_until_it_is_due() -> None:
    order = suspended_order()
    assert order.due_within_s() == 5.0
    order.resume_at(4.9)
    assert offsets_now(order) == [2]
    order.resume_at(5.0)
    assert order.due_within_s() == inf
    assert offsets_now(order) == [0]
    order.release(record(0, b"a"))
    assert offsets_now(order) == [1]


def test_what_is_held_back_does_not_wait_for_a_handler_and_is_counted_by_partition() -> None:
    order = suspended_order()
    assert (order.waiting, order.waiting_bytes, order.behind) == (1, 2, 0)
    assert +order.held_bytes == {("orders", 0): 6}
    order.add(record(4, b"a"))
    order.add(record(0, b"a", 1))
    assert (order.waiting, order.behind) == (1, 0)
    assert +order.held_bytes == {("orders", 0): 8, ("orders", 1): 2}
    order.resume_at(5.0)
    assert (order.waiting, order.behind) == (2, 4)
    assert offsets_now(order) == [0, 2]
    order.release(record(0, b"a"))
    assert order.waiting == 1
    assert +order.held_bytes == {("orders", 0): 4, ("orders", 1): 2}


def test_a_suspended_partition_that_is_gone_frees_its_keys() -> None:
    order = suspended_order()
    order.add(record(9, b"a", 1))
    order.drop_waiting([("orders", 0)])
    assert (order.due_within_s(), order.waiting, +order.held_bytes) == (inf, 1, {})
    assert offsets_now(order) == [9]


def test_a_key_stays_suspended_when_another_partition_is_gone() -> None:
    order = suspended_order()
    order.add(record(9, b"a", 1))
    order.drop_waiting([("orders", 1)])
    assert +order.held_bytes == {("orders", 0): 6}
    assert offsets_now(order) == [2]
    order.resume_at(5.0)
    assert offsets_now(order) == [0]
    order.release(record(0, b"a"))
    assert offsets_now(order) == [1]


def test_after_a_partition_is_gone_a_record_that_is_due_again_still_goes_first() -> None:
    order = suspended_order()
    order.resume_at(5.0)
    order.drop_waiting([("orders", 1)])
    assert offsets_now(order) == [0, 2]


def test_in_the_orderly_mode_records_without_a_key_have_the_order_of_their_partition() -> None:
    records = record(0, None), record(1, None), record(0, None, partition=1)
    order = order_of(*records, key_of=by_key_or_partition)
    assert [one.read_from for one in iter(order.next, None)] == [
        records[0].read_from,
        records[2].read_from,
    ]
    order.release(records[0])
    assert offsets_now(order) == [1]


keys = st.lists(st.sampled_from([None, b"a", b"b", b"c"]), max_size=30)


@given(keys, st.randoms(use_true_random=False), st.integers(1, 4))
def test_all_are_handled_and_no_two_of_a_key_at_a_time_nor_out_of_order(
    wanted: list[bytes | None], chance: Random, at_once: int
) -> None:
    """Invariant: all records are handled, those of a key one by one and in order."""
    order = order_of(*(record(offset, key) for offset, key in enumerate(wanted)))
    in_hand: list[Received] = []
    handled: list[Received] = []
    while len(handled) < len(wanted):
        while len(in_hand) < at_once and (one := order.next()):
            in_hand.append(one)
        named = [one.key for one in in_hand if one.key is not None]
        assert len(named) == len(set(named))
        ended = in_hand.pop(chance.randrange(len(in_hand)))
        handled.append(ended)
        order.release(ended)
    for key in (b"a", b"b", b"c"):
        offsets = [one.read_from.offset for one in handled if one.key == key]
        assert offsets == sorted(offsets)
    assert offsets_now(order) == []
    assert (order.waiting, order.waiting_bytes, order.behind, +order.held_bytes) == (0, 0, 0, {})
