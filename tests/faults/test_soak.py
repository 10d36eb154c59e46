"""Three minutes of the soak test: faults from a seed, on three brokers, judged twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.oracle.auditor import Auditor
from tests.support.oracle.partitioned import Tally
from tools.soak.scene import Scene
from tools.soak.soak import soak

pytestmark = [pytest.mark.integration, pytest.mark.faults, pytest.mark.slow]

MINUTES, SEED, PER_SECOND = 3, 18, 60
LEAST_FAULTS = 6


def test_everything_that_can_happen_to_three_brokers_and_two_proxies(
    tmp_path: Path, auditor: Auditor
) -> None:
    def audit(made: Scene, tally: Tally) -> None:
        auditor.confirm(made.installation, tally)

    found = soak(tmp_path, seed=SEED, minutes=MINUTES, per_second=PER_SECOND, audit=audit)
    assert len(found.done) >= LEAST_FAULTS
    assert {one.lane for one in found.done} == {"proxies", "brokers"}
