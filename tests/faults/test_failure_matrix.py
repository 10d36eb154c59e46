"""Each step of a transaction times each fault of the proxy's process and connections."""

from __future__ import annotations

from pathlib import Path
from signal import SIGCONT, SIGSTOP

import pytest

from tests.faults.matrix_scene import PARTITIONS, held_scene
from tests.support.installation.held_proxy import STEPS
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.faults]

REBALANCED_WITHIN_S = 120


@pytest.mark.parametrize("step", STEPS)
def test_killed_at_a_step(kafka: str, tmp_path: Path, step: str) -> None:
    with held_scene(kafka, tmp_path, step) as scene:
        scene.held.kill()
        scene.held.go_on()
        scene.held.start()


@pytest.mark.parametrize("step", STEPS)
def test_stopped_at_a_step_while_another_takes_over(kafka: str, tmp_path: Path, step: str) -> None:
    """Its session ends, another delivers everything, and then it goes on where it was."""
    with held_scene(kafka, tmp_path, step) as scene:
        scene.held.signal(SIGSTOP)
        heir = scene.heir()
        heir.start()
        heir.await_shards(PARTITIONS)
        scene.await_all_ends()
        scene.held.go_on()
        scene.held.signal(SIGCONT)
        both = (scene.held, heir)
        wait_for(
            lambda: sorted(proxy.shards() for proxy in both) == [1, 1],
            REBALANCED_WITHIN_S,
            "a shard for each",
        )


@pytest.mark.parametrize("step", STEPS)
def test_connections_cut_at_a_step(kafka: str, tmp_path: Path, step: str) -> None:
    with held_scene(kafka, tmp_path, step) as scene:
        scene.held.go_on_cut_off()
