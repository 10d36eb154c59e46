"""The histogram of the loop's steps."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from proxy.telemetry.metrics import STEPS, LoopSteps
from tests.support.simulation.step_counts import step_counts


def test_each_step_has_its_series_before_the_loop_turns() -> None:
    registry = CollectorRegistry()
    LoopSteps(registry)
    assert step_counts(registry) == dict.fromkeys(STEPS, 0)


def test_a_step_returns_what_it_does_and_counts_also_where_it_fails() -> None:
    registry = CollectorRegistry()
    steps = LoopSteps(registry)
    assert steps.timed("put", divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        steps.timed("put", divmod, 7, 0)
    assert step_counts(registry) == {**dict.fromkeys(STEPS, 0), "put": 2}
