"""Handlers in threads: used again, and left alone when they do not return."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from proxy.client.place import Place
from proxy.client.retries.handling.handler_threads import Handler, HandlerThreads
from proxy.client.retries.handling.job import Job
from proxy.client.retries.received import Received

WITHIN_S = 60.0
PLACE = Place("orders", 0, 0)


def job() -> Job:
    return Job(Received(PLACE, PLACE, 0, None, b"v", [], 0), 0.0)


class Hanging:
    """A handler that notes its thread and returns when it may."""

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []
        self.may_return = threading.Event()

    def __call__(self, _record: Received) -> None:
        self.threads.append(threading.current_thread())
        assert self.may_return.wait(WITHIN_S)


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    handler = Hanging()
    yield handler
    handler.may_return.set()


def handle(threads: HandlerThreads) -> BaseException | None:
    """One job from start to end."""
    threads.start(job())
    ended, error = threads.ended.get(timeout=WITHIN_S)
    threads.release(ended)
    return error


def test_a_thread_is_used_again(hanging: Hanging) -> None:
    hanging.may_return.set()
    threads = HandlerThreads(hanging)
    assert [handle(threads) for _ in range(3)] == [None] * 3
    assert len(set(hanging.threads)) == 1


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyboardInterrupt()])
def test_whatever_a_handler_raises_is_handed_over_and_its_thread_goes_on(
    error: BaseException,
) -> None:
    seen: list[threading.Thread] = []

    def fail(_record: Received) -> None:
        seen.append(threading.current_thread())
        raise error

    threads = HandlerThreads(fail)
    assert [handle(threads), handle(threads)] == [error, error]
    assert len(set(seen)) == 1


def test_the_thread_of_a_handler_that_was_given_up_ends_with_it(hanging: Hanging) -> None:
    threads = HandlerThreads(hanging)
    hung = job()
    threads.start(hung)
    threads.give_up(hung)
    hanging.may_return.set()
    assert threads.ended.get(timeout=WITHIN_S) == (hung, None)
    threads.release(hung)
    hanging.threads[0].join(WITHIN_S)
    assert not hanging.threads[0].is_alive()
    assert handle(threads) is None
    assert len(set(hanging.threads)) == 2


def test_closed_all_threads_end_those_at_work_when_they_can(hanging: Hanging) -> None:
    threads = HandlerThreads(hanging)
    threads.start(job())
    threads.close()
    hanging.may_return.set()
    threads.ended.get(timeout=WITHIN_S)
    hanging.threads[0].join(WITHIN_S)
    assert not hanging.threads[0].is_alive()


def test_no_thread_keeps_the_process_from_ending(hanging: Hanging) -> None:
    handler: Handler = hanging
    threads = HandlerThreads(handler)
    hanging.may_return.set()
    handle(threads)
    assert all(thread.daemon for thread in hanging.threads)
