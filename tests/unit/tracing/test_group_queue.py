"""The queue before the tracing thread is bounded in records and in bytes, and loses no order."""

from __future__ import annotations

from proxy.records.message import IngressPartition
from proxy.tracing.spans import DELIVERED, Committed, GroupQueue, TracedGroup

MANY, NO_LIMIT_BYTES = 1_000, 1 << 30


def group(first: int, records: int, size_bytes: int = 10) -> TracedGroup:
    entries = [(1, first + number, "orders", bytes(size_bytes)) for number in range(records)]
    return TracedGroup(IngressPartition("timer.ingress", 0), entries, DELIVERED, Committed(1, 2))


def offsets(groups: list[TracedGroup]) -> list[int | None]:
    return [record[1] for one in groups for record in one.records]


def test_records_come_out_in_their_order_so_many_at_once() -> None:
    queue = GroupQueue(MANY, NO_LIMIT_BYTES)
    assert [queue.put(group(0, 3)), queue.put(group(3, 4))] == [0, 0]
    assert [offsets(queue.take(5, 0)) for _ in range(3)] == [[0, 1, 2, 3, 4], [5, 6], []]


def test_what_has_no_room_is_dropped_until_something_is_taken() -> None:
    queue = GroupQueue(4, NO_LIMIT_BYTES)
    assert [queue.put(group(0, 3)), queue.put(group(3, 3)), queue.put(group(6, 1))] == [0, 2, 1]
    assert offsets(queue.take(MANY, 0)) == [0, 1, 2, 3]
    assert queue.put(group(7, 4)) == 0


def test_large_records_fill_it_sooner() -> None:
    queue = GroupQueue(MANY, 100)
    assert [queue.put(group(0, 1, 90)), queue.put(group(1, 2, 10))] == [0, 2]
    queue.take(MANY, 0)
    assert queue.put(group(1, 2, 10)) == 0
