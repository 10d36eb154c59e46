"""Whole runs under a memory budget that is always exhausted."""

from concurrent.futures import Executor
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.config.settings import MemorySettings
from storage.options import StoreKind
from tests.property.test_exactly_once import (
    COMMITS,
    PARTITIONS,
    POLICY,
    TARGETS,
    check_conservation,
    give_disks,
    perform,
    steps_with_bodies,
)
from tests.support.simulation.world import World

PATIENCE = 400


def read_on(world: World) -> None:
    for _ in range(PATIENCE):
        world.settle()
        read = [shard.next_offset for shard in world.shards.values()]
        if read == [world.kafka.end(partition) for partition in world.shards]:
            return
    raise AssertionError(f"reading is held for ever: {world.pipeline.memory.used_bytes} bytes")


def run(
    kind: StoreKind,
    script: list[tuple[object, ...]],
    commits: Executor | None,
    budget_bytes: int,
) -> None:
    world = World(PARTITIONS, None, 6, (*TARGETS, "checks"), commits)
    world.policy, world.max_step_ms = POLICY, 0
    world.batch_records = 2
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("proxy.config.machine.LEAST_BYTES", 0)
        world.memory = MemorySettings(per_worker_bytes=budget_bytes)
        give_disks(world, kind, Path(folder))
        try:
            for step in script:
                perform(world, step)
            world.kafka.commit_faults.clear()
            for _ in range(6):
                world.time.pass_ms(120)
                read_on(world)
        finally:
            world.crash()
    check_conservation(world)


@settings(max_examples=150, deadline=None)
@given(
    steps_with_bodies,
    st.sampled_from(COMMITS),
    st.sampled_from([16, 1_600, 6_400, 16_000]),
)
def test_however_small_the_budget_reading_goes_on_and_every_record_ends_once(
    script: list[tuple[object, ...]], commits: Executor | None, budget_bytes: int
) -> None:
    """Invariant: under any budget reading continues: full memory is written out or freed."""
    run("wheel", script, commits, budget_bytes)
