"""Whole runs of consumers: records fail, handlers hang, members join, leave and are killed."""

from __future__ import annotations

from collections import Counter, defaultdict
from concurrent.futures import Future
from random import Random
from typing import Any
from unittest.mock import patch

from kafka_delay import consumer_loop
from kafka_delay.consumer_loop import ConsumerLoop
from kafka_delay.handlers import Handling, Job, by_key, by_key_or_partition
from kafka_delay.kafka import Place
from kafka_delay.request import Receipt, Request
from kafka_delay.retries import FailureRules, Received, RetryPlan
from tests.support.simulation.manual_clock import ManualTime
from tests.unit.client.group_stand_in import TOPIC, GroupStandIn, MemberStandIn

MOST_FAILURES = 2
PARALLEL = 3
TIMEOUT_MS = 60_000
DELAY_MS = 1_000
EVERY_IGNORED = 4
MEMBERS = 2
RECORDS = 12
MOVES_EACH = 150
MOVES = ("turn", "end", "pass", "share out", "refuse", "kill")
WEIGHTS = (40, 30, 20, 4, 4, 4)


class Story:
    """End of each record, and the conditions for the start of a handler."""

    def __init__(
        self,
        group: GroupStandIn,
        failing: dict[tuple[int, int], int],
        *,
        is_orderly: bool,
    ) -> None:
        self._group, self._failing, self._is_orderly = group, failing, is_orderly
        self.over: set[Place] = set()
        self.given_up: set[Place] = set()
        self.handed_over: Counter[Place] = Counter()
        self._failures: dict[Place, int] = defaultdict(int)

    def begins(self, record: Received) -> None:
        place = record.read_from
        committed = self._group.committed[place.partition].offset
        assert place.offset >= committed, "it is handled again behind the committed offset"
        if self._is_orderly:
            self._begins_in_order(place)
            assert record.attempt <= self._failures[place]

    def _begins_in_order(self, place: Place) -> None:
        keys = self._group.keys[place.partition]
        for offset in range(place.offset):
            is_before = keys[offset] == keys[place.offset]
            assert not is_before or Place(TOPIC, place.partition, offset) in self.over

    def ends(self, record: Received) -> Exception | None:
        place = record.read_from
        if record.attempt < self._failing.get((place.partition, place.offset), 0):
            self.fails(record)
            return ValueError("it fails")
        self.over.add(place)
        self.given_up.discard(place)
        return KeyError("that does not matter") if place.offset % EVERY_IGNORED == 1 else None

    def fails(self, record: Received) -> None:
        self._failures[record.read_from] += 1
        if not self._is_orderly or record.attempt >= MOST_FAILURES:
            self.over.add(record.read_from)
            self.given_up.add(record.read_from)

    def is_stored(self, request: Request) -> None:
        headers = dict(request.headers)
        assert headers["timer-attempt"] == (b"1000" if self._is_orderly else b"0")
        number, offset = headers["retry-original-partition"], headers["retry-original-offset"]
        self.handed_over[Place(TOPIC, int(number or b""), int(offset or b""))] += 1


class Wire:
    """Writer whose records are stored at once."""

    def __init__(self, story: Story) -> None:
        self._story = story

    def write(self, request: Request) -> Future[Receipt]:
        self._story.is_stored(request)
        stored: Future[Receipt] = Future()
        stored.set_result(Receipt("ingress", 0, 0, 0))
        return stored


class Member:
    """One process: a consumer, its loop, and its running handlers."""

    def __init__(
        self,
        group: GroupStandIn,
        story: Story,
        time: ManualTime,
        revoke_within_s: float,
        *,
        is_orderly: bool,
    ) -> None:
        self.running: list[tuple[Job, Handling]] = []
        self.partitions: set[int] = set()
        self.consumer = MemberStandIn(group)
        self._story = story
        self._key_of = by_key_or_partition if is_orderly else by_key
        consumer: Any = self.consumer
        wire: Any = Wire(story)
        self._loop = ConsumerLoop(
            consumer,
            wire,
            Handling(
                self,
                PARALLEL,
                TIMEOUT_MS / 1000,
                now_s=lambda: time.monotonic_now_ms / 1000,
                key_of=self._key_of,
            ),
            RetryPlan(
                "billing",
                [TOPIC],
                "retry.billing",
                MOST_FAILURES if is_orderly else 16,
                FailureRules(ignore=[KeyError]),
                delays_ms=[DELAY_MS] if is_orderly else (),
            ),
            group.ids_of,
            max_hanging=1_000,
            revoke_within_s=revoke_within_s,
        )
        self._loop.join([TOPIC])

    def turn(self) -> None:
        self._loop.turn()

    def stop(self, *, after_turns: int = 0) -> None:
        left = iter([False] * after_turns)
        self._loop.run([TOPIC], lambda: next(left, True))

    def end(self, index: int) -> None:
        if self.running:
            job, jobs = self.running.pop(index % len(self.running))
            is_wanted = not job.is_dropped
            jobs.end(job, self._story.ends(job.record) if is_wanted else None)

    def wake(self, jobs: Handling) -> None:
        while job := jobs.take():
            at_work = [one.record for one, _ in self.running if not one.is_dropped]
            key = self._key_of(job.record)
            assert key is None or key not in {self._key_of(record) for record in at_work}
            self._story.begins(job.record)
            self.running.append((job, jobs))

    def give_up(self, job: Job) -> None:
        self.running = [one for one in self.running if one[0] is not job]
        if not job.is_dropped:
            self._story.fails(job.record)

    def close(self) -> None:
        """Do nothing."""


class World:
    def __init__(
        self,
        keys: list[list[bytes | None]],
        failing: dict[tuple[int, int], int],
        revoke_within_s: float = 0,
        *,
        is_orderly: bool,
    ) -> None:
        self.group = GroupStandIn(keys)
        self.time = ManualTime()
        self.story = Story(self.group, failing, is_orderly=is_orderly)
        self._is_orderly, self._revoke_within_s = is_orderly, revoke_within_s
        self.members = [self._member() for _ in range(MEMBERS)]

    def _member(self) -> Member:
        return Member(
            self.group,
            self.story,
            self.time,
            self._revoke_within_s,
            is_orderly=self._is_orderly,
        )

    def share_out(self, owners: tuple[int, ...]) -> None:
        wanted = [{n for n, owner in enumerate(owners) if owner == i} for i in range(MEMBERS)]
        for member, own in zip(self.members, wanted, strict=True):
            if gone := member.partitions - own:
                member.consumer.take(gone)
                member.partitions -= gone
        for member, own in zip(self.members, wanted, strict=True):
            if new := own - member.partitions:
                member.consumer.give(new)
                member.partitions |= new

    def kill(self, index: int) -> None:
        successor = self._member()
        successor.partitions = self.members[index].partitions
        self.members[index] = successor
        successor.consumer.give(successor.partitions)

    def move(self, chance: Random) -> None:
        member = chance.randrange(MEMBERS)
        (move,) = chance.choices(MOVES, WEIGHTS)
        if move == "turn":
            self.members[member].turn()
        elif move == "end":
            self.members[member].end(chance.randrange(PARALLEL))
        elif move == "pass":
            self.time.pass_ms(chance.choice([DELAY_MS // 2, DELAY_MS, DELAY_MS, TIMEOUT_MS]))
        elif move == "share out":
            self.share_out((chance.randrange(MEMBERS), chance.randrange(MEMBERS)))
        elif move == "refuse":
            self.group.refuses_commits = chance.randrange(1, 8)
        else:
            self.kill(member)

    def finish(self) -> None:
        self.group.refuses_commits = 0
        for _ in range(500):
            for member in self.members:
                member.turn()
                while member.running:
                    member.end(0)
            self.time.pass_ms(DELAY_MS)
            if self.group.is_done():
                return
        raise AssertionError(f"it does not end: {self.group.committed}")


def random_run(seed: int, *, is_orderly: bool) -> World:
    chance = Random(seed)
    keys = [chance.choices([None, b"a", b"b", b"c"], k=RECORDS) for _ in range(2)]
    failing = {
        (number, offset): chance.choice([0, 0, 1, 2, MOST_FAILURES + 1])
        for number in range(2)
        for offset in range(RECORDS)
    }
    world = World(keys, failing, is_orderly=is_orderly)
    with patch.multiple(consumer_loop, LOOK_EVERY_S=0):
        world.share_out((0, 1))
        for _ in range(MOVES_EACH):
            world.move(chance)
        world.finish()
    return world
