"""Whole runs with caps, pauses, overdue rules and ingest pauses: nothing is lost or early."""

from concurrent.futures import Executor
from dataclasses import replace
from typing import Any, Literal

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.config.settings import OverdueLimit, Resumed, TargetLimit
from proxy.dispatch.release_control import OverdueRule, RateLimit, ReleaseControl, WorkerRateLimit
from tests.property.test_exactly_once import (
    COMMITS,
    PARTITIONS,
    POLICY,
    TARGETS,
    check_conservation,
    moves,
    perform,
    sends,
)
from tests.property.test_exactly_once import faults as all_faults
from tests.support.simulation.stand_in import INGRESS
from tests.support.simulation.world import World

PER_TARGET = 8
PER_SECOND = 40
STEP_MS = 1_000
pauses = st.tuples(st.just("pause"), st.sampled_from([(), ("orders",), ("*",), ("b*", "o*")]))
resumes = st.tuples(
    st.just("resume"),
    st.sampled_from(["orders", "*", "b*"]),
    st.sampled_from([None, 1, 5, 50]),
)
ingest_pauses = st.tuples(st.just("pause ingest"), st.booleans())
ACTIONS: tuple[Literal["deliver", "dead-letter", "drop"], ...] = ("deliver", "dead-letter", "drop")


def overdue_limit(
    older_than_ms: int, action: Literal["deliver", "dead-letter", "drop"]
) -> TargetLimit:
    return TargetLimit(overdue=OverdueLimit(older_than_ms=older_than_ms, action=action))


limits = st.tuples(
    st.just("limit"),
    st.dictionaries(
        st.sampled_from(["orders", "o*", "*"]),
        st.one_of(
            st.builds(TargetLimit, per_second=st.integers(1, 50)),
            st.builds(overdue_limit, st.integers(1, 8_000), st.sampled_from(ACTIONS)),
        ),
        max_size=2,
    ),
)
overdue_rules = st.lists(
    st.builds(
        OverdueRule,
        st.sampled_from(["orders", "*"]),
        st.integers(1, 8_000),
        st.sampled_from(["deliver", "dead-letter", "drop"]),
    ),
    max_size=2,
)
long_moves = st.tuples(st.just("pass"), st.integers(0, 7_000))
steps = st.lists(
    st.one_of(
        *(sends, sends, sends, moves, long_moves),
        *(pauses, resumes, ingest_pauses, limits, all_faults),
    ),
    min_size=10,
    max_size=60,
)


def has_ended(world: World) -> bool:
    return len(world.ends()) == len(world.kafka.read(INGRESS))


def let_everything_end(world: World) -> None:
    world.kafka.commit_faults.clear()
    world.release.pause([])
    world.release.limit({})
    world.pause_ingest(False)
    for _ in range(400):
        world.settle()
        if has_ended(world):
            return
        world.time.pass_ms(STEP_MS)
    raise AssertionError("something never ends")


def operate(world: World, step: tuple[Any, ...]) -> None:
    match step:
        case ("pause", patterns):
            world.release.pause(patterns)
        case ("resume", pattern, per_second):
            end = Resumed(world.time.wall_now_ms, per_second)
            world.release.pause(world.release.paused - {pattern}, {pattern: end})
        case ("pause ingest", is_paused):
            world.pause_ingest(is_paused)
        case ("limit", limits_set):
            world.release.limit(limits_set)
        case _:
            perform(world, step)


@settings(max_examples=300, deadline=None)
@given(
    steps,
    st.integers(1, 6),
    st.sampled_from(COMMITS),
    st.booleans(),
    st.booleans(),
    overdue_rules,
)
def test_whatever_is_held_back_every_record_ends_once_and_never_early(
    script: list[tuple[object, ...]],
    limit: int,
    commits: Executor | None,
    is_capped: bool,
    has_target_caps: bool,
    overdue: list[OverdueRule],
) -> None:
    """Invariant: each record ends exactly once and none early, with any pauses and caps."""
    world = World(PARTITIONS, None, limit, (*TARGETS, "checks"), commits)
    world.policy, world.max_step_ms = replace(POLICY, max_delay_ms=6_000, roll_after_ms=2_000), 0
    world.release = ReleaseControl({"orders": PER_TARGET} if has_target_caps else {}, overdue)
    world.cap = WorkerRateLimit(PER_SECOND) if is_capped else WorkerRateLimit()
    try:
        for step in script:
            operate(world, step)
        let_everything_end(world)
    finally:
        world.crash()
    check_conservation(world)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 30)), min_size=1, max_size=30),
    st.integers(5, 200),
    st.booleans(),
)
def test_a_cap_is_exceeded_over_no_stretch_of_time_by_what_really_ends(
    arrivals: list[tuple[int, int]], per_second: int, is_per_target: bool
) -> None:
    """Invariant: between any two moments no more records end than the cap allows. It allows its
    share of the time plus the burst. A target's cap allows the burst twice, for records with a
    place in line."""
    world = World(PARTITIONS)
    if is_per_target:
        world.release = ReleaseControl({"*": per_second})
    else:
        world.cap = WorkerRateLimit(per_second)
    world.turn()
    gone: list[tuple[int, int]] = []

    def turn() -> None:
        before = len(world.delivered())
        world.turn()
        gone.append((world.time.wall_now_ms, len(world.delivered()) - before))

    for elapsed_ms, count in arrivals:
        for number in range(count):
            ask = {"timer-topic": "orders", "timer-delay": f"{number % 7 * 30}ms"}
            world.send(dict(ask), partition=number % PARTITIONS)
        for _ in range(elapsed_ms // 20 + 1):
            world.time.pass_ms(20)
            turn()
    most = RateLimit(per_second).burst * (2 if is_per_target else 1)
    for start, (from_ms, _) in enumerate(gone):
        total = 0
        for until_ms, count in gone[start:]:
            total += count
            assert total * 1000 <= per_second * (until_ms - from_ms) + most * 1000
