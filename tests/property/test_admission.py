"""Whole runs with limits on pending records and a disk below its reserve at times: reading always
pauses and continues."""

import random
from concurrent.futures import Executor
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.config.settings import AdmissionSettings
from proxy.scheduling import missed_moves
from proxy.session import limits as session_limits
from storage.options import StoreKind
from tests.property.test_exactly_once import (
    COMMITS,
    PARTITIONS,
    POLICY,
    TARGETS,
    check_conservation,
    faults,
    give_disks,
    moves,
    perform,
    sends,
)
from tests.support.simulation.world import DISK_BYTES, World

pytestmark = pytest.mark.rest

limits = st.tuples(
    st.just("limits"),
    st.builds(
        AdmissionSettings,
        records=st.one_of(st.none(), st.integers(1, 6)),
        per_target=st.one_of(
            st.just({}), st.builds(lambda n: {"orders": n}, st.integers(1, 3)), st.just({"*": 2})
        ),
        size_bytes=st.one_of(st.none(), st.integers(10, 200)),
        bytes_per_target=st.one_of(
            st.just({}), st.builds(lambda n: {"orders": n}, st.integers(10, 100))
        ),
    ),
)
disks = st.tuples(st.just("disk"), st.sampled_from([0, DISK_BYTES]))
steps = st.lists(
    st.one_of(sends, sends, sends, moves, faults, limits, disks), min_size=15, max_size=80
)


def run(
    kind: StoreKind | None, script: list[tuple[object, ...]], limit: int, commits: Executor | None
) -> World:
    world = World(PARTITIONS, None, limit, (*TARGETS, "checks"), commits)
    world.policy, world.max_step_ms = POLICY, 0
    world.admission, world.batch_records = AdmissionSettings(records=4), 2
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(missed_moves, "CHUNK_OFFSETS", 8)
        patch.setattr(missed_moves, "CHUNK_BYTES", 1)
        patch.setattr(session_limits, "LOOK_EVERY_MS", 1)
        if kind is not None:
            give_disks(world, kind, Path(folder))
        try:
            for step in script:
                if step[0] == "limits":
                    world.crash()
                    world.admission = step[1]  # type: ignore[assignment]
                elif step[0] == "disk":
                    world.disk_free_bytes = step[1]  # type: ignore[assignment]
                else:
                    perform(world, step)
            world.disk_free_bytes = DISK_BYTES
            world.come_to_an_end()
        finally:
            world.crash()
    return world


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([None, "wheel"]), steps, st.integers(1, 6), st.sampled_from(COMMITS))
def test_however_many_may_wait_every_record_ends_once_and_never_early(
    kind: StoreKind | None,
    script: list[tuple[object, ...]],
    limit: int,
    commits: Executor | None,
) -> None:
    """Invariant: each record ends exactly once, and none early."""
    check_conservation(run(kind, script, limit, commits))


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from([None, "wheel"]),
    st.lists(
        st.tuples(st.sampled_from(TARGETS), st.integers(1, 50), st.integers(0, 300)),
        min_size=1,
        max_size=60,
    ),
    st.integers(1, 10),
    st.integers(1, 10),
    st.integers(50, 1_000),
)
def test_no_more_waits_than_may_and_what_is_read_at_once(
    kind: StoreKind | None,
    sent: list[tuple[str, int, int]],
    records: int,
    per_target: int,
    size_bytes: int,
) -> None:
    """Invariant: reading one by one exceeds a limit by one record at most, and all arrive."""
    world = World(1, targets=TARGETS)
    world.batch_records = 1
    world.admission = AdmissionSettings(
        records=records, per_target={"*": per_target}, size_bytes=size_bytes
    )
    with TemporaryDirectory() as folder:
        if kind is not None:
            give_disks(world, kind, Path(folder))
        world.turn()
        for target, delay_ms, value_bytes in sent:
            asked: dict[str, str | bytes] = {"timer-topic": target, "timer-delay": str(delay_ms)}
            world.send(asked, value=bytes(value_bytes))
            world.turn(2)
            (shard,) = world.shards.values()
            assert shard.pending() <= records
            assert max(shard.pending_by_target().by_name.values(), default=0) <= per_target
            assert shard.store.pending_bytes() < size_bytes + 1_000
            world.time.pass_ms(1)
        for _ in range(len(sent)):
            world.time.pass_ms(50)
            world.settle()
        assert sum(len(world.delivered(target)) for target in TARGETS) == len(sent)
        world.crash()


DENSE_RUNS = 300


def _dense_step(chance: random.Random) -> tuple[object, ...]:
    delay = {"timer-delay": str(chance.randrange(20, 61))}
    named = {**delay, "timer-id": chance.choice("ab")}
    half = {**named, "timer-transaction": "prepare", "timer-check-topic": "checks"}
    request = chance.choices(
        [
            delay,
            named,
            half,
            {"timer-cancel": "a"},
            {"timer-id": "b", "timer-transaction": "commit"},
        ],
        [50, 25, 8, 8, 8],
    )[0]
    steps: list[tuple[object, ...]] = [
        (chance.choice(["send", "send meanwhile"]), request, chance.choice(TARGETS), 0),
        ("turn", chance.randrange(1, 3)),
        ("pass", chance.choice([0, 1, 3, 8])),
        ("crash",),
        (chance.choice(["stop", "move", "move after a crash"]),),
        ("fault", chance.choice(["before", "after"]), chance.choice("FRA")),
        ("rebalance", chance.choice(["on_revoke", "on_lost"]), 0),
        ("limits", _drawn_limits(chance)),
        ("disk", chance.choice([0, DISK_BYTES])),
    ]
    return chance.choices(steps, [50, 25, 12, 6, 4, 2, 2, 2, 4])[0]


def _drawn_limits(chance: random.Random) -> AdmissionSettings:
    if chance.random() < 0.5:
        return AdmissionSettings(records=chance.randrange(1, 5))
    return AdmissionSettings(size_bytes=chance.randrange(20, 200))


@pytest.mark.parametrize("kind", [None, "wheel"])
def test_reading_held_among_ids_half_messages_and_crashes_loses_nothing(
    kind: StoreKind | None,
) -> None:
    """Invariant: over 300 seeds every record ends exactly once, despite crashes."""
    for seed in range(DENSE_RUNS if kind is None else DENSE_RUNS // 4):
        chance = random.Random(seed)
        script = [_dense_step(chance) for _ in range(chance.randrange(30, 100))]
        limit, commits = chance.randrange(1, 7), chance.choice(COMMITS)
        world = run(kind, script, limit, commits)
        try:
            check_conservation(world)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}") from error
