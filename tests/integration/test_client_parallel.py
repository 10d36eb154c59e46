"""Slow, hanging and concurrent handlers on a real broker."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator

import pytest

from kafka_delay import HandlersHang, Received
from tests.integration.retry_world import IMPATIENT, WITHIN_S, Relay, World, at_work
from tests.support.records import Outgoing, read_to_end
from tests.support.waiting import wait_for

pytestmark = pytest.mark.integration

POLL_INTERVAL_MS = 6_000
SLOW_INTERVAL_MS, LONGER_S = 20_000, 23.0
"""The session cannot outlast the poll interval, so the machine must not freeze that long."""
HANGS = b"hangs"


@pytest.fixture
def world(kafka: str) -> World:
    return World(kafka)


class Handler:
    """Handler that notes its records. It blocks on HANGS until `may_go`."""

    def __init__(self) -> None:
        self.may_go = threading.Event()
        self.begun: list[Received] = []
        self.handled: list[Received] = []

    def __call__(self, record: Received) -> None:
        self.begun.append(record)
        if record.value == HANGS:
            self.may_go.wait(WITHIN_S)
        self.handled.append(record)

    def values(self, partition: int = 0) -> list[bytes | None]:
        return [one.value for one in self.handled if one.read_from.partition == partition]


@pytest.fixture
def handler() -> Iterator[Handler]:
    made = Handler()
    yield made
    made.may_go.set()


def numbered(count: int, partition: int = 0) -> list[Outgoing]:
    return [Outgoing(b"%d" % n, b"%d" % n, partition=partition) for n in range(count)]


def test_a_handler_slower_than_the_poll_interval_keeps_its_partition(world: World) -> None:
    seen: list[bytes | None] = []

    def slow(record: Received) -> None:
        seen.append(record.value)
        if record.value == b"0":
            threading.Event().wait(LONGER_S)

    world.write(*numbered(3))
    config = {"session.timeout.ms": SLOW_INTERVAL_MS, "max.poll.interval.ms": SLOW_INTERVAL_MS}
    with at_work(world, slow, config=config):
        wait_for(lambda: world.committed(world.orders) == 3, WITHIN_S, "the offsets")
    assert seen == [b"0", b"1", b"2"]


def test_a_handler_that_hangs_counts_as_failed_and_those_behind_go_on(
    world: World, handler: Handler, caplog: pytest.LogCaptureFixture
) -> None:
    world.write(Outgoing(b"k", HANGS, partition=0), *numbered(3))
    with at_work(world, handler, handler_timeout="1s"):
        (request,) = world.requests(1)
        wait_for(lambda: world.committed(world.orders) == 4, WITHIN_S, "the offsets")
        assert handler.values() == [b"0", b"1", b"2"]
        handler.may_go.set()
        wait_for(lambda: "has ended too late" in caplog.text, WITHIN_S, "the log line")
    assert (request.value, request.header("timer-attempt")) == (HANGS, b"0")
    assert request.header("retry-exception") == (
        b"HandlerTimedOut: the handler has not returned within 1 s"
    )
    assert len(world.requests(1)) == 1


def test_what_hangs_each_time_ends_in_the_dead_letters(world: World, handler: Handler) -> None:
    world.write(Outgoing(b"k", HANGS, partition=0))
    with at_work(world, handler, handler_timeout="100ms", max_hanging=17), Relay(world):
        wait_for(lambda: len(handler.begun) == 17, WITHIN_S, "all attempts")
        (letter,) = read_to_end(world.bootstrap, world.dlq, 1)
    assert [record.attempt for record in handler.begun] == list(range(17))
    assert letter.header("retry-attempt") == b"17"


def test_with_too_many_handlers_hanging_the_consumer_ends_with_all_of_it_counted(
    world: World, handler: Handler
) -> None:
    world.write(*[Outgoing(b"%d" % n, HANGS, partition=0) for n in range(3)])
    consumer = world.consumer(handler, handler_timeout="200ms", max_hanging=2)
    with pytest.raises(HandlersHang, match="3 handlers .* max_hanging=2"):
        consumer.run()
    assert len(world.requests(3)) == 3
    assert world.committed(world.orders) == 3
    with pytest.raises(HandlersHang, match="3 handlers .* max_hanging=2"):
        consumer.run()


def test_so_many_handlers_run_beside_each_other(world: World) -> None:
    together = threading.Barrier(4)
    world.write(*numbered(8))
    with at_work(world, lambda _: together.wait(WITHIN_S), parallel=4):
        wait_for(lambda: world.committed(world.orders) == 8, WITHIN_S, "the offsets")


def test_records_of_one_key_are_never_handled_at_once_nor_out_of_order(world: World) -> None:
    at_once: dict[bytes | None, int] = defaultdict(int)
    seen: dict[bytes | None, list[int]] = defaultdict(list)
    collisions: list[Received] = []

    def handle(record: Received) -> None:
        at_once[record.key] += 1
        threading.Event().wait(0.001)
        if at_once[record.key] > 1:
            collisions.append(record)
        seen[record.key].append(int(record.value or b""))
        at_once[record.key] -= 1

    world.write(*(Outgoing(b"%d" % (n % 5), b"%d" % n, partition=0) for n in range(500)))
    with at_work(world, handle, parallel=8):
        wait_for(lambda: world.committed(world.orders) == 500, WITHIN_S, "the offsets")
    assert not collisions
    assert all(numbers == sorted(numbers) for numbers in seen.values())
    assert sum(map(len, seen.values())) == 500


def test_nothing_behind_a_record_in_hand_is_committed(world: World, handler: Handler) -> None:
    world.write(*numbered(1), Outgoing(b"k", HANGS, partition=0), *numbered(50))
    with at_work(world, handler, parallel=2):
        wait_for(lambda: len(handler.handled) == 51, WITHIN_S, "the others")
        wait_for(lambda: world.committed(world.orders) == 1, WITHIN_S, "the one before it")
        handler.may_go.set()
        wait_for(lambda: world.committed(world.orders) == 52, WITHIN_S, "all of it")


def test_behind_a_record_that_hangs_all_others_of_its_partition_are_handled(
    world: World, handler: Handler
) -> None:
    world.write(Outgoing(b"k", HANGS, partition=0), *numbered(2_500))
    world.write(*numbered(2_500, partition=1))
    with at_work(world, handler, parallel=2):
        wait_for(lambda: len(handler.values(1)) == 2_500, WITHIN_S, "the other partition")
        wait_for(lambda: len(handler.values(0)) == 2_500, WITHIN_S, "those behind it")
        assert world.committed(world.orders) <= 0
        handler.may_go.set()
        wait_for(lambda: world.committed(world.orders) == 2_501, WITHIN_S, "all of it")
    assert len(handler.handled) == 5_001


def test_a_partition_that_comes_back_is_read_though_it_was_paused_when_it_went(
    world: World, handler: Handler
) -> None:
    """The first consumer is full and has stopped reading when the second joins. It waits half the
    poll interval for its busy handler."""
    config = {**IMPATIENT, "max.poll.interval.ms": POLL_INTERVAL_MS}
    records = [Outgoing(None, b"%d" % n, partition=n % 4) for n in range(400)]
    world.write(*[Outgoing(None, HANGS, partition=part) for part in range(4)], *records)
    with at_work(world, handler, config=config):
        wait_for(lambda: handler.begun, WITHIN_S, "the first record")
        with at_work(world, handler, config=config):
            wait_for(lambda: len(handler.begun) >= 2, WITHIN_S, "the second to begin")
            handler.may_go.set()
        wait_for(lambda: _all_committed(world), WITHIN_S, "all of it")
    assert {one.value for one in handler.handled} >= {record.value for record in records}


def _all_committed(world: World) -> bool:
    return all(world.committed(world.orders, part) == 101 for part in range(4))
