"""Running handlers: their number, time limits, and late results."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable
from threading import Thread

import pytest

from kafka_delay.errors import HandlersHang
from kafka_delay.handlers import Handling, Job
from kafka_delay.kafka import Place
from kafka_delay.retries import HandlerTimedOut, Received

ORDERS = ("orders", 0)
TIMEOUT_S = 900.0


class HeldRunner:
    """Runner that takes all jobs. The test ends their handlers."""

    def __init__(self) -> None:
        self.running: dict[int, Job] = {}
        self.left: list[int] = []
        self.is_blocked = False

    def wake(self, jobs: Handling) -> None:
        while not self.is_blocked and (job := jobs.take()):
            self.running[job.record.read_from.offset] = job

    def give_up(self, job: Job) -> None:
        self.left.append(job.record.read_from.offset)

    def close(self) -> None:
        pass


class World:
    """A handling, its runner and its clock."""

    def __init__(self, parallel: int = 1) -> None:
        self.now_s = 1_000.0
        self.on_look: Callable[[], None] = lambda: None
        self.is_stopping = False
        self.runner = HeldRunner()
        self.handling = Handling(
            self.runner, parallel, TIMEOUT_S, lambda: not self.is_stopping, self._clock
        )

    def _clock(self) -> float:
        self.on_look()
        return self.now_s

    def add(self, *offsets: int, key: bytes | None = None, partition: int = 0) -> None:
        for offset in offsets:
            place = Place("orders", partition, offset)
            self.handling.add(Received(place, place, 0, key, b"v", [], 0))
        self.handling.wake()

    def end(self, offset: int, error: BaseException | None = None) -> bool:
        return self.end_job(self.runner.running.pop(offset), error)

    def end_job(self, job: Job, error: BaseException | None = None) -> bool:
        return self.handling.end(job, error)

    def results(self) -> dict[int, BaseException | None]:
        return {r.read_from.offset: error for r, error in self.handling.results(0)}


def test_so_many_at_a_time_and_the_next_when_one_has_ended() -> None:
    world = World(parallel=2)
    world.add(0, 1, 2)
    assert list(world.runner.running) == [0, 1]
    assert world.handling.waiting == 1
    world.end(1)
    assert world.results() == {1: None}
    assert list(world.runner.running) == [0, 2]


def test_what_a_handler_raises_is_its_result() -> None:
    world, error = World(), ValueError("no")
    world.add(0)
    world.end(0, error)
    assert world.results() == {0: error}


def test_a_handler_that_does_not_return_in_time_has_failed_and_the_next_begins() -> None:
    world = World()
    world.add(0, 1, key=b"k")
    world.now_s += TIMEOUT_S - 1
    assert world.results() == {}
    world.now_s += 1
    ((record, error),) = world.handling.results(0)
    assert isinstance(error, HandlerTimedOut)
    assert "900 s" in str(error)
    assert world.runner.left == [0]
    assert 1 not in world.runner.running
    world.handling.release(record)
    world.handling.wake()
    assert 1 in world.runner.running
    assert world.handling.hanging == 1


def test_after_an_error_the_key_waits_until_it_is_said_what_is_next() -> None:
    world = World(parallel=2)
    world.add(0, 1, key=b"k")
    world.end(0, ValueError("no"))
    ((record, _),) = world.handling.results(0)
    assert not world.runner.running
    world.handling.release(record)
    world.handling.wake()
    assert list(world.runner.running) == [1]


def test_a_suspended_record_is_handled_again_when_it_is_due_and_resumed() -> None:
    world = World(parallel=2)
    world.add(0, 1, key=b"k")
    world.end(0, ValueError("no"))
    ((record, _),) = world.handling.results(0)
    world.handling.suspend(record, 5.0)
    assert world.handling.due_within_s() == 5.0
    world.now_s += 4.9
    world.handling.resume()
    assert world.results() == {}
    assert not world.runner.running
    world.now_s += 0.1
    world.handling.resume()
    assert world.results() == {}
    assert list(world.runner.running) == [0]
    world.end(0)
    assert world.results() == {0: None}
    assert list(world.runner.running) == [1]


def test_what_is_suspended_and_what_is_behind_it_is_no_work() -> None:
    world = World()
    world.add(0, 1, key=b"k")
    world.end(0, ValueError("no"))
    ((record, _),) = world.handling.results(0)
    world.handling.suspend(record, 5.0)
    assert world.handling.is_idle
    assert (world.handling.waiting, world.handling.is_at_work()) == (0, False)
    assert world.handling.crowded(4) == {ORDERS}
    assert world.handling.crowded(5) == set()


def test_a_partition_that_is_gone_frees_the_key_of_a_failure_that_was_not_told() -> None:
    world = World()
    world.add(0, key=b"k")
    world.add(7, key=b"k", partition=1)
    world.end(0, ValueError("no"))
    world.handling.drop([ORDERS])
    world.handling.wake()
    assert list(world.runner.running) == [7]


def test_a_failure_of_a_partition_that_is_gone_frees_its_key() -> None:
    world = World()
    world.add(0, key=b"k")
    world.handling.drop([ORDERS])
    world.add(7, key=b"k", partition=1)
    world.end(0, ValueError("no"))
    world.handling.wake()
    assert list(world.runner.running) == [7]


@pytest.mark.parametrize("error", [None, ValueError("late"), KeyboardInterrupt()])
def test_what_comes_of_it_later_is_logged_and_ignored(
    error: BaseException | None, caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    world.add(0)
    world.now_s += TIMEOUT_S
    world.results()
    world.now_s += 100
    assert not world.end(0, error)
    assert world.results() == {}
    assert world.handling.hanging == 0
    assert "orders/0/0: its handler has ended too late, after 1000.0 s" in caplog.text


def test_handlers_that_are_given_up_together_may_be_cancelled_before_they_count() -> None:
    world = World(parallel=3)
    world.add(0, 1, 2)
    world.now_s += TIMEOUT_S
    assert len(world.results()) == 3
    world.handling.raise_if_too_many_hang(1)
    world.now_s += 0.5
    world.end(2, CancelledError())
    world.now_s += 0.5
    world.handling.raise_if_too_many_hang(2)
    with pytest.raises(HandlersHang, match="2 handlers .* more than max_hanging=1"):
        world.handling.raise_if_too_many_hang(1)


def test_an_exception_without_text_that_comes_too_late_is_logged_by_its_class(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class NoText(Exception):
        def __repr__(self) -> str:
            raise LookupError("no translation")

        __str__ = __repr__

    world = World()
    world.add(0)
    world.now_s += TIMEOUT_S
    world.results()
    assert not world.end(0, NoText())
    assert "(NoText: NoText)" in caplog.text


def test_one_that_ends_in_the_last_moment_has_not_hung() -> None:
    world = World()
    world.add(0)
    world.now_s += TIMEOUT_S
    world.end(0)
    assert world.results() == {0: None}
    assert world.handling.hanging == 0


def test_when_a_partition_is_gone_what_is_in_hand_is_ignored_and_holds_its_place() -> None:
    world = World()
    world.add(0, 1)
    world.add(7, partition=1)
    assert world.handling.is_at_work([ORDERS])
    world.handling.drop([ORDERS])
    assert not world.handling.is_at_work()
    assert (world.handling.waiting, list(world.runner.running)) == (1, [0])
    world.end(0, ValueError("nobody's business"))
    assert world.results() == {}
    assert list(world.runner.running) == [7]


def test_a_record_that_comes_back_with_its_partition_is_another_than_the_one_in_hand() -> None:
    world = World(parallel=2)
    world.add(0)
    job = world.runner.running[0]
    world.handling.drop([ORDERS])
    world.add(0)
    world.end_job(job, ValueError("of the first time"))
    assert world.results() == {}
    world.end(0)
    assert world.results() == {0: None}


def test_of_a_partition_that_is_gone_a_handler_that_hangs_is_given_up_without_a_result() -> None:
    world = World()
    world.add(0, key=b"k")
    world.handling.drop([ORDERS])
    world.add(3, key=b"k", partition=1)
    world.now_s += TIMEOUT_S
    assert world.results() == {}
    assert (world.handling.hanging, list(world.runner.running)) == (1, [0, 3])


def test_what_no_handler_has_begun_with_can_be_forgotten_alone() -> None:
    world = World()
    world.add(0, 1)
    world.handling.drop_waiting([ORDERS])
    assert world.handling.is_at_work([ORDERS])
    assert world.handling.waiting == 0


def test_when_the_consumer_stops_nothing_more_begins_and_what_is_in_hand_is_told() -> None:
    world = World()
    world.add(0, 1)
    world.is_stopping = True
    world.end(0)
    assert world.handling.is_at_work()
    assert world.results() == {0: None}
    assert (list(world.runner.running), world.handling.is_at_work()) == ([], False)


def test_after_what_ends_the_consumer_nothing_more_begins() -> None:
    world, interrupt = World(), KeyboardInterrupt()
    world.add(0, 1)
    world.end(0, interrupt)
    assert world.results() == {0: interrupt}
    assert list(world.runner.running) == []


def test_what_ends_the_consumer_is_told_also_of_a_partition_that_is_gone_meanwhile() -> None:
    world, leaves = World(), SystemExit()
    world.add(0)
    world.handling.drop([ORDERS])
    world.end(0, leaves)
    assert world.handling.is_at_work()
    assert world.results() == {0: leaves}


def test_it_is_kept_when_its_partition_goes_before_it_is_told() -> None:
    world, leaves = World(), SystemExit()
    world.add(0)
    world.end(0, leaves)
    world.handling.drop([ORDERS])
    assert world.results() == {0: leaves}


def test_a_result_that_was_not_reported_is_forgotten_with_its_partition() -> None:
    world = World()
    world.add(0)
    world.end(0)
    assert world.handling.is_at_work([ORDERS])
    world.handling.drop([ORDERS])
    assert world.results() == {}
    assert world.handling.is_idle


def test_while_no_handler_begins_or_ends_the_log_says_so_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(parallel=2)
    world.add(0, 1, 2, 3)
    for _ in range(5):
        world.now_s += 30
        world.results()
    says = (
        "no handler has begun or ended: 2 at work, 0 still running after their timeout, 2 records "
        "wait"
    )
    assert caplog.text.count(says) == 2
    world.end(0)
    world.now_s += 59
    world.results()
    assert caplog.text.count("no handler has begun") == 2


def test_it_says_so_too_when_all_that_waits_is_behind_the_key_of_a_handler_at_work(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    world.add(0, 1, 2, key=b"k")
    assert world.handling.waiting == 0
    world.now_s += 60
    world.results()
    says = "60 s no handler has begun or ended: 1 at work, 0 still running after their timeout, 2"
    assert says in caplog.text


def test_handlers_that_wait_for_nothing_are_not_spoken_of(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.add(0)
    for _ in range(5):
        world.now_s += 120
        world.results()
    assert "no handler has begun" not in caplog.text


def test_that_none_begins_for_too_long_ends_the_consumer() -> None:
    """An abandoned handler blocks their event loop."""
    world = World(parallel=2)
    world.add(0, 1)
    world.runner.is_blocked = True
    world.add(2)
    world.now_s += TIMEOUT_S
    assert list(world.results()) == [0, 1]
    world.handling.raise_if_none_begins()
    world.now_s += TIMEOUT_S
    world.results()
    with pytest.raises(HandlersHang, match="2 handlers .* one of them blocks the event loop"):
        world.handling.raise_if_none_begins()


def test_one_that_begins_while_it_is_looked_whether_none_does_is_no_error() -> None:
    world = World()
    world.runner.is_blocked = True
    world.add(0)
    world.results()
    begins = Thread(target=world.handling.take)

    def begin_meanwhile() -> None:
        if not begins.ident:
            begins.start()
            begins.join(0.1)

    world.on_look = begin_meanwhile
    world.handling.raise_if_none_begins()
    begins.join()
