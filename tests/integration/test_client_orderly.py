"""Keys blocked by their failed record, on a real broker: order and dead letters."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import partial
from random import Random
from typing import Any

import pytest

from kafka_delay import DeadLetter, Received, RetryLater
from tests.integration.retry_world import CLASSIC, WITHIN_S, Relay, World, at_work
from tests.support.installation.other_kafka import FROM_KAFKA_4
from tests.support.records import Outgoing, read_to_end
from tests.support.waiting import wait_for

pytestmark = pytest.mark.integration

ORDERLY = {"orderly": True, "orderly_delays": "20ms"}
COOPERATIVE = {**CLASSIC, "partition.assignment.strategy": "cooperative-sticky"}
KIP_848 = {"group.protocol": "consumer"}
HANGS = b"-1"
FAILS = b"-2"


@pytest.fixture
def world(kafka: str) -> World:
    return World(kafka)


@pytest.fixture
def may_go() -> Iterator[threading.Event]:
    made = threading.Event()
    yield made
    made.set()


class Journal:
    """Handler whose `calls` lists (number, attempt) of each key by time.

    Failures are drawn once, at most three per record.
    """

    def __init__(self, seed: int = 20) -> None:
        self.calls: dict[bytes | None, list[tuple[int, int]]] = defaultdict(list)
        self.at_once: dict[bytes | None, int] = defaultdict(int)
        self.collisions: list[Received] = []
        self._chance = Random(seed)
        self._failures: dict[int, int] = {}

    def failures(self, number: int) -> int:
        return self._failures.setdefault(number, max(0, self._chance.randint(-9, 3)))

    def __call__(self, record: Received) -> None:
        number = int(record.value or b"")
        self.at_once[record.key] += 1
        threading.Event().wait(0.001)
        if self.at_once[record.key] > 1:
            self.collisions.append(record)
        self.calls[record.key].append((number, record.attempt))
        self.at_once[record.key] -= 1
        if record.attempt < self.failures(number):
            raise ValueError(f"{number} fails")

    def hold(self, key: bytes, numbers: list[int]) -> None:
        """Check that each number succeeds before the next is called. Attempts have no gaps. Another
        consumer may restart them at 0. Repeats after a success are ignored."""
        done: list[int] = []
        seen: dict[int, list[int]] = defaultdict(list)
        for number, attempt in self.calls[key]:
            if number not in done:
                assert number == numbers[len(done)]
                seen[number].append(attempt)
                if attempt >= self.failures(number):
                    done.append(number)
        assert done == numbers
        for number, attempts in seen.items():
            assert set(attempts) == set(range(self.failures(number) + 1))

    def expected(self, numbers: list[int]) -> list[tuple[int, int]]:
        return [(n, attempt) for n in numbers for attempt in range(self.failures(n) + 1)]


def keyed(numbers: range, keys: int, partition: int = 0) -> list[Outgoing]:
    return [Outgoing(b"%d" % (n % keys), b"%d" % n, partition=partition) for n in numbers]


def test_with_random_failures_and_parallel_handlers_each_key_goes_on_only_after_success(
    world: World,
) -> None:
    journal = Journal()
    names = [None, *(b"%d" % key for key in range(1, 7))]
    world.write(*(Outgoing(names[n % 7], b"%d" % n, partition=0) for n in range(400)))
    with at_work(world, journal, parallel=6, **ORDERLY):
        wait_for(lambda: world.committed(world.orders) == 400, WITHIN_S, "the offsets")
    assert not journal.collisions
    for key, name in enumerate(names):
        assert journal.calls[name] == journal.expected(list(range(key, 400, 7)))
    assert any(journal.failures(n) for n in range(400))
    assert world.requests(0) == []


def test_while_a_key_waits_others_go_on_and_the_offset_stands(
    world: World,
) -> None:
    handled: list[bytes | None] = []

    def handle(record: Received) -> None:
        if record.value == FAILS:
            raise RetryLater("1h")
        handled.append(record.key)

    world.write(Outgoing(b"k", FAILS, partition=0), *keyed(range(50), 5))
    world.write(Outgoing(b"k", b"behind it", partition=0), Outgoing(None, b"no key", partition=0))
    with at_work(world, handle, parallel=2, **ORDERLY):
        wait_for(lambda: len(handled) == 51, WITHIN_S, "the others")
    assert b"k" not in handled
    assert world.committed(world.orders) <= 0


def test_when_its_attempts_are_used_up_a_record_is_a_dead_letter_and_its_key_goes_on(
    world: World,
) -> None:
    calls: list[tuple[bytes | None, int]] = []

    def handle(record: Received) -> None:
        calls.append((record.value, record.attempt))
        if record.value == FAILS:
            raise ValueError("never")
        if record.value == b"hopeless":
            raise DeadLetter("no such customer")

    values = [b"0", FAILS, b"1", b"hopeless", b"2"]
    world.write(*(Outgoing(b"k", value, partition=0) for value in values))
    with at_work(world, handle, max_attempts=3, **ORDERLY), Relay(world):
        wait_for(lambda: world.committed(world.orders) == 5, WITHIN_S, "the offsets")
        letters = read_to_end(world.bootstrap, world.dlq, 2)
    tries = [(FAILS, attempt) for attempt in range(4)]
    assert calls == [(b"0", 0), *tries, (b"1", 0), (b"hopeless", 0), (b"2", 0)]
    assert [(one.key, one.value) for one in letters] == [(b"k", FAILS), (b"k", b"hopeless")]
    assert letters[0].header("retry-attempt") == b"4"
    assert letters[0].header("retry-exception") == b"ValueError: never"


def test_what_hangs_each_time_ends_in_the_dead_letters_and_its_key_goes_on(
    world: World, may_go: threading.Event
) -> None:
    attempts: list[int] = []

    def handle(record: Received) -> None:
        if record.value == HANGS:
            attempts.append(record.attempt)
            may_go.wait(WITHIN_S)

    world.write(Outgoing(b"k", HANGS, partition=0), Outgoing(b"k", b"behind", partition=0))
    options = {"handler_timeout": "100ms", "max_attempts": 3, **ORDERLY}
    with at_work(world, handle, **options), Relay(world):
        wait_for(lambda: world.committed(world.orders) == 2, WITHIN_S, "the offsets")
        (letter,) = read_to_end(world.bootstrap, world.dlq, 1)
    assert attempts == [0, 1, 2, 3]
    assert letter.header("retry-exception") == (
        b"HandlerTimedOut: the handler has not returned within 0.1 s"
    )


def test_a_failing_key_with_many_records_behind_it_leaves_other_partitions_alone(
    world: World, may_go: threading.Event
) -> None:
    handled: dict[int, int] = defaultdict(int)

    def handle(record: Received) -> None:
        if record.value == FAILS and not may_go.is_set():
            raise ValueError("not yet")
        handled[record.read_from.partition] += 1

    world.write(Outgoing(b"k", FAILS, partition=0), *keyed(range(3_000), 1))
    world.write(*keyed(range(3_000), 9, partition=1), Outgoing(b"0", FAILS, partition=2))
    with at_work(world, handle, parallel=2, **ORDERLY):
        wait_for(lambda: handled[1] == 3_000, WITHIN_S, "the other partition")
        may_go.set()
        wait_for(lambda: world.committed(world.orders) == 3_001, WITHIN_S, "the offsets")


@pytest.mark.parametrize(
    "config",
    [CLASSIC, COOPERATIVE, pytest.param(KIP_848, marks=FROM_KAFKA_4)],
    ids=["classic", "cooperative", "kip-848"],
)
def test_while_consumers_come_and_go_no_key_goes_on_before_its_time(
    world: World, config: Mapping[str, Any]
) -> None:
    journal = Journal()
    for part in range(4):
        keys = [b"%d" % (part * 10 + n % 5) for n in range(300)]
        world.write(*(Outgoing(k, b"%d" % n, partition=part) for n, k in enumerate(keys)))
    options = {"config": config, "parallel": 3, **ORDERLY}

    def has_called(times: int) -> bool:
        return sum(map(len, journal.calls.values())) >= times

    with at_work(world, journal, **options):
        wait_for(partial(has_called, 50), WITHIN_S, "the first to begin")
        for wanted in (250, 600):
            with at_work(world, journal, **options):
                wait_for(partial(has_called, wanted), WITHIN_S, "both to work")
        wait_for(lambda: _all_committed(world, 300), WITHIN_S, "all of it")
    assert not journal.collisions
    assert world.requests(0) == []
    for part in range(4):
        for key in range(5):
            journal.hold(b"%d" % (part * 10 + key), list(range(key, 300, 5)))


def _all_committed(world: World, records: int) -> bool:
    return all(world.committed(world.orders, part) == records for part in range(4))
