"""Everything at once, drawn from a seed: each record ends once, none early, none is rewritten for
ever.

Faults hide where operations meet. So each seed draws some of them and leaves others out: with fewer
kinds of steps, those that there are meet more often. Slow rates after a pause are left to other
tests. One seed:

    python -m tests.property.test_interplay --from 17

Many, with the shortest script that still fails for each that does:

    python -m tests.property.test_interplay --seeds 50000
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias
from unittest.mock import patch

import pytest
import structlog
from confluent_kafka import KafkaException

from proxy.config.resumed import Resumed
from proxy.config.settings import AdmissionSettings
from proxy.config.target_limit import OverdueLimit, TargetLimit
from proxy.dispatch.rate_limit import WorkerRateLimit
from proxy.dispatch.release_control import OverdueRule, ReleaseControl
from proxy.records.position import Position
from proxy.requests.policy import Policy
from proxy.session import back_pressure
from storage.options import StoreKind
from tests.property.test_exactly_once import COMMITS, FAULTS, POLICY, TARGETS, give_disks
from tests.support.oracle.asked import Rules
from tests.support.oracle.conservation import violations
from tests.support.simulation.manual_clock import START_MS
from tests.support.simulation.stand_in import INGRESS
from tests.support.simulation.world import DISK_BYTES, World

Step: TypeAlias = tuple[Any, ...]
Draw: TypeAlias = Callable[[random.Random, "Plan"], Step]

SEEDS_IN_SUITE: Final = 100
KINDS: Final[tuple[StoreKind | None, ...]] = (None, None, None, None, "wheel", "wheel", "levels")
PARTITIONS: Final = 2
LARGE: Final = 40
"""Bytes beyond what a target takes that refuses large records."""
MOST_ROUNDS: Final = 600


@dataclass(frozen=True, slots=True)
class Plan:
    """What a seed has drawn. scale: how many ms one of the times of POLICY takes: pauses and rates
    need seconds. workers: how many share the partitions. commits: when transactions are really
    committed."""

    seed: int
    kind: StoreKind | None
    scale: int
    limit: int
    interval_ms: int
    workers: int
    commits: Executor | None
    per_target: dict[str, int]
    per_second: int | None
    overdue: tuple[OverdueRule, ...]
    script: tuple[Step, ...]

    @property
    def policy(self) -> Policy:
        """In which all times are as short as the seed wants them."""
        return _scaled(POLICY, self.scale)

    @property
    def rules(self) -> Rules:
        """What the judge goes by."""
        policy = self.policy
        return Rules(
            levels_ms=policy.levels_ms,
            first_level=policy.retry_first_level,
            max_attempts=policy.retry_max_attempts,
            immunity_ms=policy.immunity_ms,
            check_interval_ms=policy.check_interval_ms,
            max_checks=policy.max_checks,
            transaction_ms=0,
        )


def _scaled(policy: Policy, scale: int) -> Policy:
    return replace(
        policy,
        levels_ms=tuple(scale * level_ms for level_ms in policy.levels_ms),
        max_delay_ms=scale * policy.max_delay_ms,
        roll_after_ms=scale * (policy.roll_after_ms or 12),
        immunity_ms=scale * policy.immunity_ms,
        check_interval_ms=scale * policy.check_interval_ms,
    )


# What a seed draws


def _time(chance: random.Random, scale: int) -> dict[str, str]:
    return chance.choice(
        [
            {"timer-deliver-at": str(START_MS + scale * chance.randrange(-2, 40))},
            {"timer-delay": str(scale * chance.randrange(7))},
            {"timer-delay": str(scale * chance.randrange(30))},
            {"timer-delay": str(scale * chance.randrange(81))},
            {"timer-level": str(chance.randrange(4))},
            {},
        ]
    )


def _asked(chance: random.Random, plan: Plan) -> Step:
    """A record that a producer writes: now, while the next transaction commits, or in a transaction
    of its own."""
    time_, ident = _time(chance, plan.scale), {"timer-id": chance.choice("ab")}
    prepare = {"timer-transaction": "prepare", "timer-check-topic": "checks"}
    decide = {"timer-transaction": chance.choice(["commit", "commit", "rollback"])}
    request = chance.choices(
        [
            time_,
            {**time_, **ident},
            {"timer-cancel": ident["timer-id"]},
            {**time_, **ident, **prepare},
            {**ident, **decide},
            {"timer-recall": str(min(chance.randrange(1, 20), chance.randrange(1, 20)))},
            {"timer-delay": "soon"},
        ],
        _weights_of_requests(plan.seed),
    )[0]
    when = chance.choice(["now", "now", "meanwhile", "in a transaction"])
    target = chance.choice(["orders", "orders", "bills", "nowhere"])
    return "send", when, request, target, _partition(chance), chance.choice([0, 0, 0, LARGE])


def _burst(chance: random.Random, plan: Plan) -> Step:
    """Several records written while one transaction commits: what that rewrites is in mid-hop."""
    partition = _partition(chance)
    steps = [_asked(chance, plan) for _ in range(chance.randrange(2, 6))]
    near = [
        {"timer-recall": str(chance.randrange(1, 4))} if "timer-recall" in step[2] else step[2]
        for step in steps
    ]
    return "burst", tuple(
        ("send", "meanwhile", request, step[3], partition, step[5])
        for step, request in zip(steps, near, strict=True)
    )


def _weights_of_requests(seed: int) -> list[int]:
    chance = random.Random(f"requests {seed}")
    return [chance.choice([0, 5, 20, 60]) for _ in range(6)] + [1]


def _partition(chance: random.Random) -> int:
    return chance.choice([0, 0, 0, 1])


def _worker(chance: random.Random, plan: Plan) -> int:
    return chance.randrange(plan.workers)


def _turn(chance: random.Random, plan: Plan) -> Step:
    return "turn", _worker(chance, plan), chance.randrange(1, 4)


def _pass(chance: random.Random, plan: Plan) -> Step:
    return "pass", plan.scale * chance.choice([0, 1, 1, 2, 3, 5, 8, 13, 30])


def _move(chance: random.Random, plan: Plan) -> Step:
    before = min(chance.randrange(1, 20), chance.randrange(1, 20))
    at_ms = START_MS + plan.scale * chance.randrange(-2, 90)
    return "move", chance.choice(["now", "meanwhile"]), before, _partition(chance), at_ms


def _purge(chance: random.Random, plan: Plan) -> Step:
    bounds = [
        chance.choice([None, START_MS]),
        chance.choice([None, START_MS + 40 * plan.scale]),
    ]
    when, pattern = chance.choice(["now", "meanwhile"]), chance.choice(["orders", "*"])
    return "purge", when, pattern, *bounds, _partition(chance)


def _pause(chance: random.Random, plan: Plan) -> Step:
    patterns = chance.choice([("orders",), ("*",), ("b*", "o*"), ("bills",), (), ()])
    return "pause", patterns, chance.choice([None, None, None, 1_000])


def _limit(chance: random.Random, plan: Plan) -> Step:
    limits: dict[str, TargetLimit] = {}
    for pattern in chance.choice([(), (), ("orders",), ("*",), ("o*", "bills")]):
        action = chance.choice(["deliver", "dead-letter", "drop"])
        limits[pattern] = chance.choice(
            [
                TargetLimit(per_second=chance.choice([1, 5, 50])),
                TargetLimit(
                    overdue=OverdueLimit(
                        older_than_ms=plan.scale * chance.randrange(1, 40), action=action
                    )
                ),
            ]
        )
    return "limit", limits


def _admission(chance: random.Random, plan: Plan) -> Step:
    settings = chance.choice(
        [
            {},
            {"records": chance.randrange(1, 5)},
            {"size_bytes": chance.randrange(20, 300)},
            {"per_target": {"orders": chance.randrange(1, 4)}},
        ]
    )
    return "admission", _worker(chance, plan), settings


def _policy(chance: random.Random, plan: Plan) -> Step:
    changes = chance.choice(
        [
            {"max_delay_ms": plan.scale * chance.randrange(6, 60)},
            {"roll_after_ms": chance.choice([None, 12 * plan.scale, 25 * plan.scale])},
            {"retry_max_attempts": chance.randrange(1, 4)},
            {"deny": chance.choice([(), ("bills",)])},
        ]
    )
    return "policy", _worker(chance, plan), changes


def _refuse(chance: random.Random, plan: Plan) -> Step:
    what = chance.choice(["large", "large", "gone", "nothing", "nothing"])
    return "refuse", what, chance.choice(["orders", "bills", INGRESS])


def _fault(chance: random.Random, plan: Plan) -> Step:
    return "fault", *chance.choice(
        [("before", "F"), ("after", "F"), ("before", "R"), ("before", "A")]
    )


FEATURES: Final[dict[str, tuple[int, Draw]]] = {
    "burst": (15, _burst),
    "move": (12, _move),
    "purge": (4, _purge),
    "pause": (5, _pause),
    "pause ingest": (3, lambda chance, _: ("pause ingest", chance.choice([True, False]))),
    "limit": (4, _limit),
    "worker rate": (3, lambda chance, _: ("worker rate", chance.choice([None, 3, 20, 100]))),
    "admission": (3, _admission),
    "disk": (3, lambda chance, _: ("disk", chance.choice([0, DISK_BYTES, DISK_BYTES]))),
    "crash": (6, lambda chance, plan: ("crash", _worker(chance, plan))),
    "stop": (3, lambda chance, plan: ("stop", _worker(chance, plan))),
    "other disk": (3, lambda chance, plan: ("other disk", _worker(chance, plan))),
    "fault": (4, _fault),
    "assign": (
        5,
        lambda chance, _: ("assign", chance.choice(["now", "meanwhile"]), chance.randrange(2)),
    ),
    "evict": (2, lambda chance, _: ("evict", chance.randrange(2))),
    "clock": (2, lambda chance, plan: ("clock", plan.scale * chance.randrange(-8, 9))),
    "policy": (3, _policy),
    "bodies": (
        2,
        lambda chance, plan: ("bodies", _worker(chance, plan), chance.choice(["local", "kafka"])),
    ),
    "batches": (
        2,
        lambda chance, plan: ("batches", _worker(chance, plan), chance.choice([1, 3, 1_000])),
    ),
    "refuse": (4, _refuse),
    "end": (5, lambda chance, _: ("end", _partition(chance), chance.choice([True, False]))),
    "retention": (3, lambda _chance, _: ("retention",)),
}
"""How often a kind of step is drawn where a seed has it, and how."""


def draw(seed: int) -> Plan:
    """All that happens under this seed."""
    chance = random.Random(seed)
    scale = chance.choice([1, 1, 100])
    has_rates = scale > 1 and chance.random() < 0.3
    rule = OverdueRule("*", scale * chance.randrange(5, 60), chance.choice(["dead-letter", "drop"]))
    plan = Plan(
        seed,
        kind=chance.choice(KINDS),
        scale=scale,
        limit=chance.choice([1, 2, 3, 5, 8, 100]),
        interval_ms=chance.choice([0, 0, 10 * scale]),
        workers=chance.choice([1, 1, 2]),
        commits=chance.choice(COMMITS),
        per_target={"orders": 8} if has_rates else {},
        per_second=40 if scale > 1 and chance.random() < 0.2 else None,
        overdue=(rule,) if chance.random() < 0.1 else (),
        script=(),
    )
    share = chance.choice([0.2, 0.4, 0.8])
    steps: list[tuple[int, Draw]] = [
        (chance.choice([20, 40, 80]), _asked),
        (50 if plan.workers == 1 else 90, _turn),
        (30, _pass),
        *(one for one in FEATURES.values() if chance.random() < share),
    ]
    weights, draws = zip(*steps, strict=True)
    drawn = chance.choices(draws, weights, k=chance.randrange(30, 120))
    return replace(plan, script=tuple(one(chance, plan) for one in drawn))


# What happens then


class Play:
    """One run: a group of proxies, a broker, and whoever else does something to them."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan = plan
        self._at_work: set[int] = set()
        first = World(PARTITIONS, None, plan.limit, (*TARGETS, "checks"), plan.commits)
        self.worlds = [first]
        for _ in range(plan.workers - 1):
            self.worlds.append(
                World(PARTITIONS, None, plan.limit, commits=plan.commits, beside=first)
            )
        self.kafka, self.time, self.operators = first.kafka, first.time, first.policies
        if plan.workers > 1:
            self.kafka.wanted = {0: 0, 1: 1}
        for number, world in enumerate(self.worlds):
            world.policy, world.max_step_ms = plan.policy, 0
            world.interval_ms = plan.interval_ms
            if plan.kind is not None:
                give_disks(world, plan.kind, folder / str(number))
            self._start(world)

    def perform(self, step: Step) -> None:
        """Let one thing happen."""
        match step[0]:
            case "send" | "move" | "purge":
                self._produce(step)
            case "end" | "refuse" | "retention" | "fault":
                self._change_broker(step)
            case "pause" | "pause ingest" | "limit" | "worker rate":
                self._operate(step)
            case "crash" | "stop" | "admission" | "policy" | "bodies" | "batches" | "other disk":
                self._restart(step)
            case "assign" | "evict":
                self._rebalance(step)
            case _:
                self._go_on(step)

    def _go_on(self, step: Step) -> None:
        match step:
            case ("burst", tuple() as steps):
                for one in steps:
                    self.perform(one)
            case ("turn", int() as number, int() as times):
                self._turn(number, times)
            case ("pass", int() as elapsed_ms):
                self.time.pass_ms(elapsed_ms)
            case ("disk", int() as free_bytes):
                for world in self.worlds:
                    world.disk_free_bytes = free_bytes
            case ("clock", int() as wrong_ms):
                for number in range(len(self.worlds)):
                    self._crash(number)
                self.time.step_ms(wrong_ms)
            case _:
                raise AssertionError(step)

    def finish(self) -> None:
        """All is well again, and time passes until every record has ended."""
        self.kafka.commit_faults.clear()
        self.kafka.meanwhile.clear()
        self.kafka.max_bytes.clear()
        self.kafka.topics = dict.fromkeys((*TARGETS, "checks"), 4)
        lifted: list[Step] = [
            ("disk", DISK_BYTES),
            ("pause", (), None),
            ("pause ingest", False),
            ("limit", {}),
            ("worker rate", None),
            *(("end", partition, True) for partition in range(PARTITIONS)),
        ]
        for step in lifted:
            self.perform(step)
        for number in range(MOST_ROUNDS):
            self._settle()
            if len(self.worlds[0].ends()) == len(self.kafka.read(INGRESS)):
                return
            self.time.pass_ms(self.plan.scale * (10 if number % 4 else 60))
        raise AssertionError("something never ends")

    def close(self) -> None:
        """Let go of all files."""
        for world in self.worlds:
            world.crash()

    def wrong(self) -> list[str]:
        """Everything that should not be."""
        ends = self.worlds[0].evidence(("checks",))
        gone = [
            f"{o}: its body is gone" for o, (_, said) in ends.said.items() if "body-gone" in said
        ]
        return [*violations(ends, self.plan.rules), *gone, *self._rewritten_too_often()]

    def _rewritten_too_often(self) -> Iterator[str]:
        """Once for each roll window that has passed, each attempt to deliver it, and whatever else
        an operator does."""
        firsts = Counter(
            first
            for record in self.kafka.read(INGRESS)
            if (first := record.header("timer-first-origin")) and record.header("timer-hop-mac")
        )
        elapsed_ms = self.time.broker_now_ms - START_MS
        kinds = Counter(step[0] for step in self.plan.script)
        by_hand = sum(kinds[kind] for kind in ("pause", "limit", "move", "worker rate", "crash"))
        most = 30 + 4 * by_hand + 2 * kinds["refuse"] + elapsed_ms // (12 * self.plan.scale)
        for first, times in firsts.items():
            if times > most:
                yield f"{first!r} was rewritten {times} times, {most} would be many"

    def _turn(self, number: int, times: int) -> None:
        """An error of the consumer ends the session as well: what a member reads that the group has
        evicted may have been deleted. Were it needed, the next session would refuse to start."""
        world = self.worlds[number]
        for _ in range(times):
            self._at_work.add(number)
            is_lost = False
            try:
                world.turn()
            except KafkaException:
                is_lost = True
            self._at_work.discard(number)
            if is_lost or world.pipeline.is_lost:
                self._crash(number)

    def _settle(self) -> None:
        """Turn all of them until nothing more can happen at this time."""
        for _ in range(1_000):
            before = self._progress()
            for number in range(len(self.worlds)):
                self._turn(number, 2)
            if before == self._progress():
                return
        raise AssertionError("the proxies do not come to rest")

    def _progress(self) -> object:
        logs = [len(log) for log in self.kafka.logs.values()]
        read = [shard.next_offset for world in self.worlds for shard in world.shards.values()]
        return logs, read, dict(self.kafka.committed)

    def _start(self, world: World) -> None:
        """A process begins with what its settings and the operators say."""
        plan = self.plan
        world.release = ReleaseControl(plan.per_target, plan.overdue)
        world.cap = WorkerRateLimit(plan.per_second)
        self._tell(world)

    def _tell(self, world: World) -> None:
        wanted = self.operators
        world.release.pause(wanted.paused, wanted.resumed)
        world.release.limit(wanted.limits)
        world.cap.set(wanted.max_per_second)

    def _crash(self, number: int) -> None:
        world = self.worlds[number]
        world.crash()
        self._start(world)

    def _operate(self, step: Step) -> None:
        wanted = self.operators
        match step:
            case ("pause", tuple() as patterns, rate):
                over = wanted.paused - set(patterns)
                ended = dict.fromkeys(over, Resumed(self.time.wall_now_ms, rate))
                kept = {p: end for p, end in wanted.resumed.items() if p not in patterns}
                wanted.paused, wanted.resumed = frozenset(patterns), {**kept, **ended}
            case ("limit", dict() as limits):
                wanted.limits = limits
            case ("worker rate", per_second):
                wanted.max_per_second = per_second
            case ("pause ingest", bool() as is_paused):
                for world in self.worlds:
                    world.pause_ingest(is_paused)
        for world in self.worlds:
            self._tell(world)

    def _restart(self, step: Step) -> None:
        match step:
            case ("crash", int() as number):
                self._crash(number)
            case ("other disk", int() as number):
                self._crash(number)
                self.worlds[number].machine = 1 - self.worlds[number].machine
            case ("stop", int() as number):
                self._at_work.add(number)
                self.worlds[number].stop()
                self._at_work.discard(number)
                self._start(self.worlds[number])
            case ("admission", int() as number, dict() as settings):
                self._crash(number)
                self.worlds[number].admission = AdmissionSettings(**settings)
            case ("policy", int() as number, dict() as changes):
                self._crash(number)
                self.worlds[number].policy = replace(self.worlds[number].policy, **changes)
            case ("bodies", int() as number, str() as kept):
                self._crash(number)
                self.worlds[number].bodies = kept
            case ("batches", int() as number, int() as batch_records):
                self._crash(number)
                self.worlds[number].batch_records = batch_records

    def _rebalance(self, step: Step) -> None:
        if self.plan.workers == 1:
            return
        match step:
            case ("assign", "now", int() as partition):
                self.kafka.wanted[partition] = 1 - self.kafka.wanted[partition]
            case ("assign", "meanwhile", int() as partition):
                self.kafka.meanwhile.append(partial(self._taken_meanwhile, partition))
            case ("evict", int() as number):
                self._evict(number)

    def _evict(self, number: int) -> None:
        """The group believes that it is gone; it does not know yet."""
        self.kafka.leave(number)
        for partition, member in self.kafka.wanted.items():
            if member == number:
                self.kafka.wanted[partition] = 1 - number

    def _taken_meanwhile(self, partition: int) -> None:
        """While its owner commits, another one is given it and goes to work."""
        owner = self.kafka.held.get(partition)
        if owner is not None and 1 - owner not in self._at_work:
            self._evict(owner)
            self._turn(1 - owner, 1)

    def _produce(self, step: Step) -> None:
        match step:
            case ("send", str() as when, *asked):
                partition = asked[2]
                self._write(when, partition, partial(self._send, *asked))
            case ("move", str() as when, int() as before, int() as partition, int() as at_ms):
                self._write(when, partition, self._moving(partition, before, at_ms))
            case ("purge", str() as when, *asked):
                self._write(when, asked[-1], partial(self.worlds[0].purge, *asked))

    def _change_broker(self, step: Step) -> None:
        match step:
            case ("fault", str() as when, str() as kind):
                self.kafka.commit_faults.append((when, FAULTS[kind]()))
            case ("end", int() as partition, bool() as is_committed):
                self.kafka.end_transaction(partition, is_committed=is_committed)
            case ("refuse", "large", str() as topic):
                self.kafka.max_bytes[topic] = LARGE
            case ("refuse", "gone", str() as topic):
                self.kafka.topics.pop(topic, None)
            case ("refuse", "nothing", str() as topic):
                self.kafka.max_bytes.pop(topic, None)
                if topic != INGRESS:
                    self.kafka.topics[topic] = 4
            case ("retention",):
                for partition, (offset, metadata) in self.kafka.committed.items():
                    floor = Position.from_metadata(offset, metadata).floor
                    self.kafka.log_starts[partition] = floor

    def _write(self, when: str, partition: int, write: Callable[[], Any]) -> None:
        if when == "meanwhile":
            self.kafka.meanwhile.append(write)
        elif when == "in a transaction":
            self.kafka.open_transaction(partition, write)
        else:
            write()

    def _send(self, request: dict[str, str], target: str, partition: int, size_bytes: int) -> Any:
        end = self.kafka.end(partition)
        value = f"{partition}/{end}".encode().ljust(size_bytes, b".")
        if "timer-recall" in request:
            recalled = max(0, end - int(request["timer-recall"]))
            request = {"timer-recall": f"{INGRESS}/{partition}/{recalled}"}
        asked: dict[str, str | bytes] = {"timer-topic": target, **request}
        return self.worlds[0].send(asked, value=value, partition=partition)

    def _moving(self, partition: int, before: int, at_ms: int) -> Callable[[], Any]:
        offset = max(0, self.kafka.end(partition) - before)
        for world in self.worlds:
            if partition in world.shards:
                return world.moving(partition, offset, at_ms)
        return lambda: None


def play(plan: Plan) -> list[str]:
    """What is wrong in the end, a sentence each; an error counts as well."""
    with tempfile.TemporaryDirectory() as folder, patch.object(back_pressure, "LOOK_EVERY_MS", 1):
        made = Play(plan, Path(folder))
        try:
            for step in plan.script:
                made.perform(step)
            made.finish()
            return made.wrong()
        except Exception as error:  # noqa: BLE001 (whatever it is, the seed has found something)
            return [f"{type(error).__name__}: {error}"]
        finally:
            made.close()


def shrunk(plan: Plan) -> Plan:
    """With as few steps as still go wrong in some way."""
    script, size = list(plan.script), len(plan.script) // 2
    while size:
        start = 0
        while start < len(script):
            fewer = script[:start] + script[start + size :]
            if play(replace(plan, script=tuple(fewer))):
                script = fewer
            else:
                start += size
        size //= 2
    return replace(plan, script=tuple(script))


def trace(plan: Plan) -> Iterator[str]:
    """What happened, to be read."""
    yield f"seed {plan.seed}: {replace(plan, script=())}"
    yield from (f"  {step}" for step in plan.script)
    with tempfile.TemporaryDirectory() as folder, patch.object(back_pressure, "LOOK_EVERY_MS", 1):
        made = Play(plan, Path(folder))
        try:
            for step in plan.script:
                made.perform(step)
            made.finish()
        except Exception as error:  # noqa: BLE001 (it is told with the rest)
            yield f"  {type(error).__name__}: {error}"
        for record in made.kafka.read(INGRESS):
            headers = {
                n: (v or b"").decode()[:40] for n, v in record.headers_ if n != "timer-hop-mac"
            }
            at_ms = record.timestamp_ms - START_MS
            yield f"  {record.partition()}/{record.offset()} +{at_ms} {headers}"
        yield from (f"  {end}" for end in sorted(made.worlds[0].ends()))
        yield from (f"  WRONG {wrong}" for wrong in made.wrong())
        made.close()


@contextmanager
def _silent() -> Iterator[None]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


@pytest.mark.parametrize("first", range(0, SEEDS_IN_SUITE, 100))
def test_every_record_ends_once_and_never_early_whatever_meets(first: int) -> None:
    """Of each of these seeds: each record ends exactly once, none early, as the order of the log
    says, and none is rewritten without end."""
    with _silent():
        found = {seed: play(draw(seed)) for seed in range(first, first + 100)}
    assert {seed: wrong[:3] for seed, wrong in found.items() if wrong} == {}


def main(arguments: Sequence[str]) -> int:
    """Play seeds, and tell of those that go wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--as-drawn", action="store_true", help="do not look for a shorter script")
    asked = parser.parse_args(arguments)
    failed, began_s = 0, time.monotonic()
    with _silent():
        for number, seed in enumerate(range(asked.first, asked.first + asked.seeds), 1):
            plan = draw(seed)
            if wrong := play(plan):
                failed += 1
                print(f"seed {seed}: {wrong[:3]}", flush=True)
                print(*trace(plan if asked.as_drawn else shrunk(plan)), sep="\n", flush=True)
            if number % 1_000 == 0:
                took_s = time.monotonic() - began_s
                print(f"{number} seeds, {failed} failed, {took_s:.0f} s", flush=True)
    print(f"{asked.seeds} seeds from {asked.first}: {failed} failed")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
