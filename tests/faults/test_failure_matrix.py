"""Each step of a transaction with each fault of the proxy's process and connections."""

from __future__ import annotations

from pathlib import Path
from signal import SIGCONT, SIGSTOP

import pytest

from tests.faults.matrix_records import PARTITIONS
from tests.faults.matrix_scene import held_scene
from tests.support.installation.held_proxy import STEPS

pytestmark = [pytest.mark.integration, pytest.mark.faults]


@pytest.mark.parametrize("step", STEPS)
def test_killed_at_a_step(kafka: str, tmp_path: Path, step: str) -> None:
    with held_scene(kafka, tmp_path, step) as scene:
        scene.held.kill()
        scene.held.go_on()
        scene.held.start()


@pytest.mark.parametrize("step", STEPS)
def test_stopped_at_a_step_while_another_takes_over(kafka: str, tmp_path: Path, step: str) -> None:
    """Its session ends and another proxy delivers everything. Then it continues from the step."""
    with held_scene(kafka, tmp_path, step) as scene:
        scene.held.signal(SIGSTOP)
        heir = scene.heir()
        heir.start()
        heir.await_shards(PARTITIONS)
        scene.await_all_ends()
        scene.held.go_on()
        scene.held.signal(SIGCONT)
        scene.await_a_shard_each()


@pytest.mark.parametrize("step", STEPS)
def test_connections_cut_at_a_step(kafka: str, tmp_path: Path, step: str) -> None:
    with held_scene(kafka, tmp_path, step) as scene:
        scene.held.go_on_cut_off()
