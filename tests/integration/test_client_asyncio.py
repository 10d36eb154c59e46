"""The client in an event loop, on a real broker."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kafka_delay import (
    AsyncDelayProducer,
    AsyncRetryConsumer,
    DeadLetter,
    HandlersHang,
    NotStored,
    QueueFull,
    Received,
    RequestRefused,
    RetryLater,
    RetryNotStored,
)
from tests.faults.group_members import is_left_by_all
from tests.integration.retry_world import CLASSIC, WITHIN_S, World, at_work
from tests.support.quiet_clients import QUIET
from tests.support.records import Outgoing, new_topic, read_to_end
from tests.support.waiting import wait_for

pytestmark = pytest.mark.integration

AsyncHandle = Callable[[Received], Awaitable[object]]


@pytest.fixture
def world(kafka: str) -> World:
    return World(kafka)


def consumer_of(world: World, handler: AsyncHandle, **options: Any) -> AsyncRetryConsumer:
    config = {"bootstrap.servers": world.bootstrap, **QUIET, **CLASSIC}
    given = {"ingress": world.ingress, **options}
    return AsyncRetryConsumer(config, world.group, [world.orders], handler, **given)


async def until(condition: Callable[[], bool], what: str) -> None:
    """Wait in the loop. Check the condition in a thread, because the check may block."""
    deadline_s = time.monotonic() + WITHIN_S
    while not await asyncio.to_thread(condition):
        assert time.monotonic() < deadline_s, f"waited in vain for {what}"
        await asyncio.sleep(0.05)


async def work(consumer: AsyncRetryConsumer, condition: Callable[[], bool]) -> None:
    running = asyncio.create_task(consumer.run())
    try:
        await until(lambda: running.done() or condition(), "the consumer")
    finally:
        consumer.stop()
        await asyncio.wait_for(running, WITHIN_S)


def numbered(count: int) -> list[Outgoing]:
    return [Outgoing(b"%d" % n, b"%d" % n, partition=0) for n in range(count)]


def test_coroutine_handlers_run_beside_each_other_in_the_callers_loop(world: World) -> None:
    world.write(*numbered(9))
    begun = 0

    async def main() -> None:
        loop, all_here = asyncio.get_running_loop(), asyncio.Event()

        async def handle(record: Received) -> None:
            nonlocal begun
            assert asyncio.get_running_loop() is loop
            begun += 1
            if begun >= 3:
                all_here.set()
            await asyncio.wait_for(all_here.wait(), WITHIN_S)
            if record.value == b"5":
                raise DeadLetter("no such customer")

        await work(consumer_of(world, handle, parallel=3), lambda: committed(world, 9))

    asyncio.run(main())
    assert begun == 9
    (request,) = world.requests(1)
    assert (request.value, request.header("timer-attempt")) == (b"5", b"16")


def committed(world: World, offset: int) -> bool:
    return world.committed(world.orders) == offset


def test_a_coroutine_that_takes_too_long_is_cancelled_and_comes_again(world: World) -> None:
    world.write(*numbered(2))
    cancelled: list[bytes | None] = []

    async def handle(record: Received) -> None:
        if record.value == b"0":
            try:
                await asyncio.sleep(WITHIN_S)
            except asyncio.CancelledError:
                cancelled.append(record.value)
                raise

    async def main() -> None:
        consumer = consumer_of(world, handle, handler_timeout="300ms")
        await work(consumer, lambda: committed(world, 2))

    asyncio.run(main())
    assert cancelled == [b"0"]
    (request,) = world.requests(1)
    assert (request.value, request.header("timer-attempt")) == (b"0", b"0")


def test_run_that_is_cancelled_commits_what_is_handled_and_leaves_what_is_in_hand(
    world: World,
) -> None:
    world.write(*numbered(3))

    async def main() -> None:
        in_hand = asyncio.Event()

        async def handle(record: Received) -> None:
            if record.value == b"2":
                in_hand.set()
                await asyncio.sleep(WITHIN_S)

        running = asyncio.create_task(consumer_of(world, handle).run())
        await asyncio.wait_for(in_hand.wait(), WITHIN_S)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(running, WITHIN_S)

    asyncio.run(main())
    assert world.committed(world.orders) == 2
    assert world.requests(0) == []


def test_a_handler_that_blocks_the_loop_for_good_leaves_its_partitions_to_others(
    world: World,
) -> None:
    world.write(*numbered(30))
    may_go = threading.Event()
    seen: list[bytes | None] = []

    async def block(_record: Received) -> None:
        may_go.wait(3 * WITHIN_S)

    blocked = consumer_of(world, block, handler_timeout="300ms")
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(asyncio.run, blocked.run())
        try:
            wait_for(lambda: world.requests(0), WITHIN_S, "the first to be given up")
            wait_for(lambda: is_left_by_all(world.bootstrap, world.group), WITHIN_S, "the group")
            with at_work(world, lambda record: seen.append(record.value)):
                wait_for(lambda: committed(world, 30), WITHIN_S, "the others")
        finally:
            may_go.set()
            blocked.stop()
        with pytest.raises(HandlersHang, match="blocks the event loop"):
            ended.result(WITHIN_S)
    assert seen == [record.value for record in numbered(30)[1:]]


def test_a_key_waits_for_its_failed_record_also_after_a_restart(
    world: World,
) -> None:
    values = [b"fails", *(b"%d" % n for n in range(20)), b"behind"]
    keys = {b"fails": b"k", b"behind": b"k"}
    world.write(*(Outgoing(keys.get(value, value), value, partition=0) for value in values))
    calls: list[tuple[bytes | None, int]] = []
    delays = ["1h"]

    async def handle(record: Received) -> None:
        await asyncio.sleep(0)
        calls.append((record.value, record.attempt))
        if record.value == b"fails" and record.attempt < 2:
            raise RetryLater(delays[-1])

    async def main() -> None:
        first = consumer_of(world, handle, parallel=5, orderly=True)
        await work(first, lambda: len(calls) == 21)
        delays.append("500ms")
        second = consumer_of(world, handle, parallel=5, orderly=True)
        await work(second, lambda: committed(world, 22))

    asyncio.run(main())
    assert sorted(calls[:21]) == sorted([(b"fails", 0), *((value, 0) for value in values[1:-1])])
    again = [call for call in calls[21:] if call[0] in keys]
    assert again == [(b"fails", 0), (b"fails", 1), (b"fails", 2), (b"behind", 0)]


def test_what_ends_the_consumer_is_raised_where_it_is_awaited(world: World) -> None:
    world.ingress = new_topic(world.bootstrap, "narrow", 1, {"max.message.bytes": "1000"})
    world.write(Outgoing(b"k", b"x" * 5_000, partition=0))

    async def handle(_record: Received) -> None:
        raise ValueError("no")

    with pytest.raises(RetryNotStored):
        asyncio.run(consumer_of(world, handle).run())


def test_what_is_sent_is_awaited_until_the_broker_has_it(kafka: str) -> None:
    ingress = new_topic(kafka, "ingress", 2)

    async def main() -> None:
        async with AsyncDelayProducer({"bootstrap.servers": kafka}, ingress=ingress) as producer:
            first = await producer.send("orders", "1", key="k", delay="10s", id="a")
            second = await producer.replace("a", "orders", "2", delay="20s")
            third = await producer.cancel("a")
            fourth = await producer.recall(second)
            assert [one.offset for one in (first, second, third, fourth)] == [0, 1, 2, 3]
            assert fourth.partition == second.partition
            many = [producer.send("orders", str(n), delay="1s") for n in range(100)]
            assert len(await asyncio.gather(*many)) == 100
            with pytest.raises(RequestRefused):
                await producer.send("orders", delay="soon")

    asyncio.run(main())
    assert len(read_to_end(kafka, ingress, 104)) == 104


def test_a_record_that_is_not_taken_fails_where_it_is_awaited_and_the_loop_goes_on(
    kafka: str,
) -> None:
    async def main() -> None:
        config = {"bootstrap.servers": kafka, **QUIET, "message.timeout.ms": 6_000}
        missing = f"missing-{uuid.uuid4().hex[:8]}"
        small = {**config, "queue.buffering.max.messages": 1, "allow.auto.create.topics": False}
        async with AsyncDelayProducer(small, ingress=missing, max_block_s=0.1) as producer:
            sends = [asyncio.create_task(producer.send("orders", str(n))) for n in range(2)]
            found = await asyncio.gather(*sends, return_exceptions=True)
        assert sorted(type(one) is QueueFull for one in found) == [False, True]
        assert all(isinstance(one, NotStored) for one in found)

    asyncio.run(main())
