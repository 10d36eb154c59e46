"""Handlers in threads, which are reused, or abandoned if they do not return."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from kafka_delay.handlers import HandlerThreads
from kafka_delay.retries import Received
from tests.unit.client.handler_jobs import WITHIN_S, Work


class Hanging:
    """Handler that notes its thread and returns on a signal."""

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []
        self.may_return = threading.Event()
        self._begun, self._counted = threading.Semaphore(0), 0

    def __call__(self, _record: Received) -> None:
        self.threads.append(threading.current_thread())
        self._begun.release()
        assert self.may_return.wait(WITHIN_S)

    def await_begun(self, count: int) -> None:
        while self._counted < count:
            assert self._begun.acquire(timeout=WITHIN_S)
            self._counted += 1


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    handler = Hanging()
    yield handler
    handler.may_return.set()


def test_a_thread_does_all_the_jobs_there_are_and_is_woken_for_more(hanging: Hanging) -> None:
    hanging.may_return.set()
    threads, work = HandlerThreads(hanging, 1), Work(0)
    for more in (1, 2):
        work.jobs = Work(more).jobs
        for job in work.jobs:
            work.put(job)
        threads.wake(work)
        assert work.errors() == [None] * more
    assert len(set(hanging.threads)) == 1
    threads.close()


def test_so_many_threads_work_at_a_time(hanging: Hanging) -> None:
    threads, work = HandlerThreads(hanging, 3), Work(3)
    threads.wake(work)
    hanging.await_begun(3)
    hanging.may_return.set()
    assert work.errors() == [None] * 3
    assert len(set(hanging.threads)) == 3
    threads.close()


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyboardInterrupt()])
def test_whatever_a_handler_raises_is_handed_over_and_its_thread_goes_on(
    error: BaseException,
) -> None:
    seen: list[threading.Thread] = []

    def fail(_record: Received) -> None:
        seen.append(threading.current_thread())
        raise error

    threads, work = HandlerThreads(fail, 1), Work(2)
    threads.wake(work)
    assert work.errors() == [error, error]
    assert len(set(seen)) == 1
    threads.close()


def test_the_thread_of_a_handler_that_was_given_up_ends_with_it_and_another_takes_its_place(
    hanging: Hanging,
) -> None:
    threads, work = HandlerThreads(hanging, 1), Work(2, given_up=0)
    threads.wake(work)
    hanging.await_begun(1)
    threads.give_up(work.jobs[0])
    threads.wake(work)
    hanging.await_begun(2)
    hanging.may_return.set()
    assert work.errors() == [None, None]
    hanging.threads[0].join(WITHIN_S)
    assert not hanging.threads[0].is_alive()
    assert hanging.threads[1].is_alive()
    threads.close()


def test_closed_all_threads_end_those_at_work_when_they_can(hanging: Hanging) -> None:
    threads, work = HandlerThreads(hanging, 1), Work(2)
    threads.wake(work)
    hanging.await_begun(1)
    threads.close()
    hanging.may_return.set()
    hanging.threads[0].join(WITHIN_S)
    assert not hanging.threads[0].is_alive()
    assert work.take() is not None


def test_no_thread_keeps_the_process_from_ending(hanging: Hanging) -> None:
    HandlerThreads(hanging, 2).wake(Work(2))
    hanging.await_begun(2)
    assert all(thread.daemon for thread in hanging.threads)


def test_a_coroutine_that_nobody_would_await_is_a_failure_and_not_taken_for_success() -> None:
    async def handle() -> None:
        """Never called."""

    threads, work = HandlerThreads(lambda _record: handle(), 1), Work(1)
    threads.wake(work)
    (error,) = work.errors()
    assert isinstance(error, TypeError)
    threads.close()
