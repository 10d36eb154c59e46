"""Percentiles from a histogram are exact to one twentieth, for any number of records."""

import numpy as np
import pytest

from tools.overload.lateness_by_second import LatenessBySecond


def test_percentiles_are_right_to_one_twentieth_and_the_longest_exactly() -> None:
    late_ms = np.random.default_rng(1).lognormal(6, 2, 20_000)
    lateness = LatenessBySecond()
    for part in np.split(late_ms, 40):
        lateness.note(7_500.0, part)
    found = lateness.whole()
    p50, p99 = np.percentile(late_ms, [50, 99])
    assert found.records == 20_000
    assert found.p50_ms == pytest.approx(p50, rel=0.06)
    assert found.p99_ms == pytest.approx(p99, rel=0.06)
    assert found.max_ms == pytest.approx(late_ms.max(), abs=0.1)


def test_nothing_that_came_has_no_lateness() -> None:
    assert LatenessBySecond().whole().records == 0
    assert list(LatenessBySecond().by_second()) == []
