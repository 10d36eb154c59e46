"""Keys that wait for their failed record, on a real broker: order, counts, dead letters."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from random import Random

import pytest

from proxy.client import Received, RetryLater
from tests.integration.retry_world import CLASSIC, WITHIN_S, Relay, World, at_work
from tests.support.records import Outgoing, read_to_end
from tests.support.waiting import wait_for

pytestmark = pytest.mark.integration

ORDERLY = {"orderly": True, "orderly_delays": "20ms"}


@pytest.fixture
def world(kafka: str) -> World:
    return World(kafka)


@pytest.fixture
def may_go() -> Iterator[threading.Event]:
    made = threading.Event()
    yield made
    made.set()


class Journal:
    """Handles records; `calls` has (number, attempt) of each key, in order of time.

    Which of them fail, and how often, is drawn once: at most three times.
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

    def expected(self, key: bytes, numbers: list[int]) -> list[tuple[int, int]]:
        """Each number until it succeeds, then the next."""
        return [(n, attempt) for n in numbers for attempt in range(self.failures(n) + 1)]


def keyed(numbers: range, keys: int, partition: int | None = 0) -> list[Outgoing]:
    return [Outgoing(b"%d" % (n % keys), b"%d" % n, partition=partition) for n in numbers]


def test_with_random_failures_and_parallel_handlers_each_key_goes_on_only_after_success(
    world: World,
) -> None:
    journal = Journal()
    world.write(*keyed(range(400), 7))
    with at_work(world, journal, parallel=6, **ORDERLY):
        wait_for(lambda: world.committed(world.orders) == 400, WITHIN_S, "the offsets")
    assert not journal.collisions
    for key in range(7):
        name = b"%d" % key
        assert journal.calls[name] == journal.expected(name, list(range(key, 400, 7)))
    assert any(journal.failures(n) for n in range(400))
    assert world.requests(0) == []
