"""Each step of a transaction with each fault of the broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from signal import SIGCONT, SIGSTOP

import pytest

from proxy.embedded import EmbeddedBroker
from tests.faults.matrix_scene import PATIENT_S, held_scene
from tests.support.installation.held_proxy import STEPS

pytestmark = [pytest.mark.integration, pytest.mark.faults]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path_factory.mktemp("broker")) as started:
        yield started


@pytest.mark.parametrize("step", STEPS)
def test_broker_that_answers_nothing_from_a_step_on(
    broker: EmbeddedBroker, tmp_path: Path, step: str
) -> None:
    """Calls time out. Once it resumes, the broker executes pending requests, even a commit."""
    with held_scene(broker.bootstrap_servers, tmp_path, step, PATIENT_S) as scene:
        broker.signal(SIGSTOP)
        try:
            scene.held.go_on()
            scene.await_failed_call()
        finally:
            broker.signal(SIGCONT)


@pytest.mark.parametrize("step", STEPS)
def test_coordinators_gone_at_a_step(broker: EmbeddedBroker, tmp_path: Path, step: str) -> None:
    """The only broker hosts both coordinators. Pending requests are lost."""
    with held_scene(broker.bootstrap_servers, tmp_path, step, PATIENT_S) as scene:
        broker.kill()
        scene.held.go_on()
        scene.await_failed_call()
        broker.start()
