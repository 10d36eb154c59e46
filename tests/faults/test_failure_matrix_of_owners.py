"""Each step of a transaction with each way to lose the right to commit it."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.faults.group_members import is_settled, remove_members
from tests.faults.matrix_scene import HARM_WITHIN_S, PATIENT_S, held_scene
from tests.support.installation.held_proxy import STEPS
from tests.support.quiet_clients import QUIET
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.faults]

OWNS = ("shard taken over", "waiting for committed offsets")
REFUSED = "group has changed"
SEEN_TO_BE_REFUSED = STEPS[: STEPS.index("all records")]
"""From this step on the commit thread is blocked, and the loop notices the loss first."""


@pytest.mark.parametrize("step", STEPS)
def test_fenced_at_a_step(kafka: str, tmp_path: Path, step: str) -> None:
    with held_scene(kafka, tmp_path, step) as scene:
        ident = f"{scene.group_id}-one-0/{len(scene.group_id)}"
        named = {"bootstrap.servers": kafka, "transactional.id": ident}
        Producer({**named, **QUIET}).init_transactions(HARM_WITHIN_S)
        scene.held.go_on()
        scene.await_session_lost()


@pytest.mark.parametrize("step", STEPS)
def test_generation_lost_at_a_step(kafka: str, tmp_path: Path, step: str) -> None:
    """An operator removes it from the group. Another member gets its partitions."""
    with held_scene(kafka, tmp_path, step, PATIENT_S) as scene:
        remove_members(kafka, scene.group_id)
        heir = scene.heir()
        heir.start()
        wait_for(lambda: any(said in heir.log for said in OWNS), HARM_WITHIN_S, str(OWNS))
        scene.held.go_on()
        scene.await_session_lost()
        assert step not in SEEN_TO_BE_REFUSED or REFUSED in scene.held.log, scene.held.log_tail()


@pytest.mark.parametrize("step", STEPS)
def test_generation_gone_on_at_a_step(kafka: str, tmp_path: Path, step: str) -> None:
    """Another member gets one of the two partitions. The other one is planned again."""
    with held_scene(kafka, tmp_path, step, PATIENT_S) as scene:
        scene.heir().start()
        wait_for(lambda: is_settled(kafka, scene.group_id, 2), HARM_WITHIN_S, "two members")
        scene.held.go_on()
        scene.await_a_shard_each()
