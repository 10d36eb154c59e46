"""Handlers as tasks of an event loop: each job ends, at any moment of cancellation."""

from __future__ import annotations

import asyncio

from kafka_delay.handlers import AwaitedWasCancelled, HandlerTasks
from kafka_delay.retries import Received
from tests.unit.client.handler_jobs import WITHIN_S, Work


def test_a_job_ends_with_what_its_handler_raises() -> None:
    async def handler(_record: Received) -> None:
        raise ValueError("no")

    async def main() -> None:
        work = Work(3)
        HandlerTasks(handler, asyncio.get_running_loop()).wake(work)
        errors = await asyncio.to_thread(work.errors)
        assert [str(error) for error in errors] == ["no"] * 3

    asyncio.run(main())


def test_a_task_that_is_cancelled_before_its_first_step_ends_its_job() -> None:
    async def handler(_record: Received) -> None:
        raise AssertionError("it must not begin")

    async def main() -> None:
        work, loop = Work(2), asyncio.get_running_loop()
        tasks = HandlerTasks(handler, loop)
        tasks.wake(work)
        loop.call_soon(tasks.cancel_all)
        errors = await asyncio.to_thread(work.errors)
        assert [type(error) for error in errors] == [asyncio.CancelledError] * 2

    asyncio.run(main())


def test_a_handler_that_awaits_a_task_which_others_have_cancelled_has_failed() -> None:
    async def handler(_record: Received) -> None:
        other = asyncio.ensure_future(asyncio.Event().wait())
        other.cancel()
        await other

    async def main() -> None:
        work = Work(1)
        HandlerTasks(handler, asyncio.get_running_loop()).wake(work)
        (error,) = await asyncio.to_thread(work.errors)
        assert isinstance(error, AwaitedWasCancelled)
        assert isinstance(error.__cause__, asyncio.CancelledError)

    asyncio.run(main())


def test_a_handler_that_is_given_up_is_cancelled() -> None:
    begun = asyncio.Event()

    async def handler(_record: Received) -> None:
        begun.set()
        await asyncio.Event().wait()

    async def main() -> None:
        work = Work(1, given_up=0)
        tasks = HandlerTasks(handler, asyncio.get_running_loop())
        tasks.wake(work)
        await asyncio.wait_for(begun.wait(), WITHIN_S)
        tasks.give_up(work.jobs[0])
        (error,) = await asyncio.to_thread(work.errors)
        assert isinstance(error, asyncio.CancelledError)

    asyncio.run(main())
