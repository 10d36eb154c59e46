"""Retry consumer processes are killed, started and stopped: nothing is lost, every failure counts.

A relay replaces the proxy and delivers at once.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.integration.retry_process import FAILS_TIMES, fails
from tests.integration.retry_world import IMPATIENT, WITHIN_S, Relay, World
from tests.support.group_offsets import committed
from tests.support.quiet_clients import QUIET
from tests.support.records import Outgoing
from tests.support.waiting import wait_for

pytestmark = pytest.mark.integration

REPOSITORY = Path(__file__).parents[2]
RECORDS = 1_200
KEYS = 40
HANGS_ONCE = 1
KILLS = 4
GIVEN_UP = {False: ("give_up", 1), True: ("give_up_task", 1)}
STOPPING, REVOKED = ("finish", 1), ("revoke", 1)
COMMITTED, STORED = ("settled", 1), ("commit", 1)
"""STORED: the retry requests are committed, but not the offsets yet."""
STORE_WITHIN_MS = 10_000
POLLS = {"max.poll.interval.ms": 20_000}
"""A rebalance waits for hanging handlers for half of this interval."""


class Fleet:
    """Processes of one group, and the journal of their handled records."""

    def __init__(
        self,
        world: World,
        folder: Path,
        *,
        is_async: bool = False,
        **options: Any,
    ) -> None:
        self.world, self._options = world, options
        self.is_async = is_async
        self.journal = folder / "journal"
        self.journal.touch()
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *, is_static: bool, dies_in: tuple[str, int] | None = None) -> None:
        """Start a process. If static, a successor takes over its member name at once."""
        world = self.world
        config = {"bootstrap.servers": world.bootstrap, **QUIET, **IMPATIENT, **POLLS}
        producer: dict[str, Any] = {"message.timeout.ms": STORE_WITHIN_MS}
        if is_static:
            config["group.instance.id"] = f"{world.group}-{name}"
        options = {
            "config": config,
            "group": world.group,
            "topics": [world.orders],
            "ingress": world.ingress,
            "producer_config": producer,
            "parallel": 4,
            "journal": str(self.journal),
            "dies_in": dies_in,
            "is_async": self.is_async,
            **self._options,
        }
        command = [sys.executable, "-m", "tests.integration.retry_process", json.dumps(options)]
        self._running[name] = subprocess.Popen(command, cwd=REPOSITORY)

    def kill(self, name: str) -> None:
        process = self._running.pop(name)
        process.kill()
        process.wait(WITHIN_S)

    def await_death(self, name: str) -> None:
        assert self._running.pop(name).wait(WITHIN_S) == -signal.SIGKILL

    def tell_to_stop(self, name: str) -> None:
        self._running[name].terminate()

    def stop(self, name: str) -> None:
        process = self._running.pop(name)
        process.terminate()
        assert process.wait(WITHIN_S) == 0

    def stop_or_forget(self, name: str) -> None:
        """Stop a process. One that has just started may end before it handles the signal."""
        process = self._running.pop(name)
        process.terminate()
        assert process.wait(WITHIN_S) in {0, -signal.SIGTERM}

    def close(self) -> None:
        for name in list(self._running):
            self.kill(name)

    def lines(self) -> list[str]:
        return self.journal.read_text("ascii").splitlines()

    def await_progress(self, lines: int = 100) -> None:
        wanted = len(self.lines()) + lines
        wait_for(lambda: len(self.lines()) >= wanted, WITHIN_S, f"{wanted} calls of handlers")

    def calls(self) -> list[tuple[int, int]]:
        return [(int(number), int(attempt)) for number, attempt in map(str.split, self.lines())]

    def attempts(self) -> dict[int, set[int]]:
        found: dict[int, set[int]] = defaultdict(set)
        for number, attempt in self.calls():
            found[number].add(attempt)
        return found


@pytest.fixture(params=[False, True], ids=["threads", "asyncio"])
def fleet(kafka: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    options: dict[str, Any] = {"stuck": HANGS_ONCE, "handler_timeout": "5s"}
    made = Fleet(World(kafka), tmp_path, is_async=request.param, **options)
    yield made
    made.close()


def all_committed(world: World) -> bool:
    group = {"bootstrap.servers": world.bootstrap, "group.id": world.group, **QUIET}
    consumer = Consumer({**group, "isolation.level": "read_committed"})
    try:
        for topic in (world.orders, world.retry):
            for number in consumer.list_topics(topic, WITHIN_S).topics[topic].partitions:
                place = TopicPartition(topic, number)
                first, end = consumer.get_watermark_offsets(place, WITHIN_S)
                (read_to,) = committed(consumer, [place])
                if end > first and read_to.offset < end:
                    return False
        return True
    finally:
        consumer.close()


def asked_attempts(world: World) -> dict[int, list[int]]:
    asked: dict[int, list[int]] = defaultdict(list)
    for request in world.requests(0):
        asked[int(request.value or b"")].append(int(request.header("timer-attempt") or b""))
    return {number: sorted(attempts) for number, attempts in asked.items()}


def come_and_go(fleet: Fleet) -> None:
    fleet.world.write(*(Outgoing(b"%d" % (n % KEYS), b"%d" % n) for n in range(RECORDS)))
    fleet.start("one", is_static=True)
    for _ in range(KILLS):
        fleet.await_progress()
        fleet.kill("one")
        fleet.start("one", is_static=True)
        fleet.start("guest", is_static=False)
        fleet.await_progress()
        fleet.stop_or_forget("guest")
    fleet.start("guest", is_static=False)
    fleet.await_progress()
    fleet.kill("guest")


def die_in_each_moment(fleet: Fleet) -> None:
    first, second = range(RECORDS // 2), range(RECORDS // 2, RECORDS)
    fleet.world.write(*(Outgoing(b"%d" % (n % KEYS), b"%d" % n) for n in first))
    for moment in (GIVEN_UP[fleet.is_async], STORED, COMMITTED, STOPPING, REVOKED):
        fleet.start("one", is_static=True, dies_in=moment)
        if moment == STOPPING:
            fleet.await_progress(10)
            fleet.tell_to_stop("one")
        if moment == REVOKED:
            fleet.world.write(*(Outgoing(b"%d" % (n % KEYS), b"%d" % n) for n in second))
            fleet.await_progress(10)
            fleet.start("guest", is_static=False)
        fleet.await_death("one")
    fleet.start("one", is_static=True)


@pytest.mark.parametrize("happens", [come_and_go, die_in_each_moment])
def test_killed_and_shared_out_anew_no_record_is_lost_and_every_failure_counts(
    fleet: Fleet, happens: Callable[[Fleet], None]
) -> None:
    world = fleet.world
    with Relay(world):
        happens(fleet)
        wait_for(lambda: set(fleet.attempts()) == set(range(RECORDS)), WITHIN_S, "all of it")
        wait_for(lambda: _is_done(fleet), WITHIN_S, "all retries")
        wait_for(lambda: all_committed(world), WITHIN_S, "all offsets")
        fleet.stop("one")
    wanted = list(range(FAILS_TIMES))
    asked = asked_attempts(world)
    assert set(asked) - {HANGS_ONCE} == {number for number in range(RECORDS) if fails(number)}
    expected = dict.fromkeys(asked, wanted) | {HANGS_ONCE: [0]}
    assert {number: sorted(set(found)) for number, found in asked.items()} == expected


def _is_done(fleet: Fleet) -> bool:
    return all(
        attempts == set(range(FAILS_TIMES + 1 if fails(number) else 1 + (number == HANGS_ONCE)))
        for number, attempts in fleet.attempts().items()
    )


def test_killed_in_mid_retry_each_key_goes_on_in_order(kafka: str, tmp_path: Path) -> None:
    """Each number succeeds before the next of its key is handled. A new consumer may restart the
    attempts at 0. Attempts have no gaps."""
    options: dict[str, Any] = {"orderly": True, "orderly_delays": "100ms"}
    fleet = Fleet(World(kafka), tmp_path, **options)
    try:
        come_and_go(fleet)
        wait_for(lambda: all_committed(fleet.world), WITHIN_S, "all offsets")
        fleet.stop("one")
    finally:
        fleet.close()
    assert fleet.world.requests(0) == []
    for key in range(KEYS):
        _hold_order(fleet, list(range(key, RECORDS, KEYS)))


def _hold_order(fleet: Fleet, numbers: list[int]) -> None:
    done: list[int] = []
    counts: dict[int, set[int]] = defaultdict(set)
    for number, attempt in fleet.calls():
        if number not in numbers or number in done:
            continue
        assert number == numbers[len(done)]
        assert attempt == 0 or attempt - 1 in counts[number]
        counts[number].add(attempt)
        if attempt == (FAILS_TIMES if fails(number) else 0):
            done.append(number)
    assert done == numbers
