"""Records of one key are handled one after the other, others beside each other."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from proxy.client.place import Place
from proxy.client.retries.handling.key_order import KeyOrder
from proxy.client.retries.received import Received


def record(offset: int, key: bytes | None = b"k", partition: int = 0) -> Received:
    place = Place("orders", partition, offset)
    return Received(place, place, 0, key, b"v", [], 0)


def order_of(*records: Received) -> KeyOrder:
    order = KeyOrder()
    for one in records:
        order.add(one)
    return order


def offsets_now(order: KeyOrder) -> list[int]:
    """Everything that may be handled beside each other."""
    return [one.read_from.offset for one in iter(lambda: order.next(0.0), None)]


def test_one_key_is_handled_in_order_and_others_meanwhile() -> None:
    first, second = record(0, b"a"), record(1, b"a")
    order = order_of(first, second, record(2, b"b"))
    assert offsets_now(order) == [0, 2]
    order.done(first)
    assert offsets_now(order) == [1]
    order.done(second)
    assert offsets_now(order) == []


def test_records_without_a_key_hold_up_nobody() -> None:
    assert offsets_now(order_of(record(0, None), record(1, None))) == [0, 1]


def test_a_key_is_one_key_in_whatever_topic_it_is_read() -> None:
    assert offsets_now(order_of(record(0, b"a"), record(0, b"a", partition=1))) == [0]


def test_one_at_a_time_the_order_is_that_of_reading_across_keys() -> None:
    first = record(0, b"a")
    order = order_of(first, record(1, b"a"), record(2, b"b"))
    assert order.next(0.0) == first
    order.done(first)
    assert offsets_now(order) == [1, 2]


def test_what_waits_is_counted() -> None:
    order = order_of(record(0, b"a"), record(1, b"a"), record(2, b"b"))
    assert (order.records, order.size_bytes) == (3, 6)
    offsets_now(order)
    assert (order.records, order.size_bytes) == (1, 2)


def test_of_a_partition_that_is_gone_nothing_waits_and_its_key_goes_on_elsewhere() -> None:
    held = record(0, b"a")
    order = order_of(held, record(1, b"b"), record(5, b"b", 1), record(2, b"a"), record(6, b"a", 1))
    assert order.next(0.0) == held
    order.drop([("orders", 0)])
    assert (order.records, order.size_bytes) == (2, 4)
    assert offsets_now(order) == [5]
    order.done(held)
    assert offsets_now(order) == [6]


keys = st.lists(st.sampled_from([None, b"a", b"b", b"c"]), max_size=30)


@given(keys, st.randoms(use_true_random=False), st.integers(1, 4))
def test_all_are_handled_and_no_two_of_a_key_at_a_time_nor_out_of_order(
    wanted: list[bytes | None], chance: Random, at_once: int
) -> None:
    """Whatever the keys, however many at a time, whoever ends first."""
    order = order_of(*(record(offset, key) for offset, key in enumerate(wanted)))
    in_hand: list[Received] = []
    handled: list[Received] = []
    while len(handled) < len(wanted):
        while len(in_hand) < at_once and (one := order.next(0.0)):
            in_hand.append(one)
        named = [one.key for one in in_hand if one.key is not None]
        assert len(named) == len(set(named))
        ended = in_hand.pop(chance.randrange(len(in_hand)))
        handled.append(ended)
        order.done(ended)
    for key in (b"a", b"b", b"c"):
        offsets = [one.read_from.offset for one in handled if one.key == key]
        assert offsets == sorted(offsets)
    assert offsets_now(order) == []
