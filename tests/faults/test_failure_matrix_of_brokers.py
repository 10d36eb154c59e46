"""Each step of a transaction times each fault of connection and producer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from proxy.embedded import EmbeddedBroker
from tests.faults.matrix_scene import Scene, held_scene
from tests.support.installation.held_proxy import STEPS
from tests.support.quiet_clients import QUIET
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.faults]

NOTICED_WITHIN_S = 120
FENCED_WITHIN_S = 60


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path_factory.mktemp("broker")) as started:
        yield started


@pytest.mark.parametrize("step", STEPS)
def test_connections_cut_at_a_step(broker: EmbeddedBroker, tmp_path: Path, step: str) -> None:
    with held_scene(broker, tmp_path, step) as scene:
        scene.held.go_on_cut_off()


@pytest.mark.parametrize("step", STEPS)
def test_fenced_at_a_step(broker: EmbeddedBroker, tmp_path: Path, step: str) -> None:
    """Another producer of the same transactional id is initialised; then it is gone."""
    with held_scene(broker, tmp_path, step) as scene:
        settings = scene.installation.settings("one")
        usurper = {
            "bootstrap.servers": broker.bootstrap_servers,
            "transactional.id": f"{settings['group_id']}-one-0",
            **QUIET,
        }
        Producer(usurper).init_transactions(FENCED_WITHIN_S)
        scene.held.go_on()
        _await_in_log(scene, "session lost")


def _await_in_log(scene: Scene, said: str) -> None:
    wait_for(lambda: said in scene.held.log, NOTICED_WITHIN_S, f"{said}: {scene.held.log_tail()}")
