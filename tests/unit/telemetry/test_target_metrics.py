"""Metrics by target: bounded in number, without losses beyond the bound."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from proxy.telemetry.collectors import OTHER, TargetMetrics

BOUNDS_MS = (1, 5, 100, 1_000)
Sample = tuple[str, ...]

deliveries = st.lists(
    st.lists(st.tuples(st.sampled_from("abcd"), st.integers(-10, 2_000)), min_size=1, max_size=30),
    max_size=5,
)


def samples(metrics: TargetMetrics) -> dict[Sample, float]:
    return {
        (sample.name.removeprefix("delay_proxy_"), *sample.labels.values()): sample.value
        for family in metrics.collect()
        for sample in family.samples
    }


@given(deliveries, st.integers(0, 5))
def test_each_delivery_counts_once_in_all_and_for_its_target(
    batches: list[list[tuple[str, int]]], most: int
) -> None:
    """Invariant: each bucket has the number of values up to its bound. The first targets have
    names, and all others share one."""
    metrics = TargetMetrics(most, BOUNDS_MS, BOUNDS_MS)
    for batch in batches:
        targets, late_ms = zip(*batch, strict=True)
        metrics.delivered(targets, np.array(late_ms))
    found, everything = samples(metrics), [one for batch in batches for one in batch]
    named = {label[1] for label in found if label[0] == "target_lateness_seconds_count"}
    assert len(named - {OTHER}) == min(most, len({target for target, _ in everything}))
    values: dict[str, list[int]] = {target: [] for target in named}
    for target, value in everything:
        values[target if target in named else OTHER].append(value)
    for target, late in values.items():
        for bound_ms in BOUNDS_MS:
            place = ("target_lateness_seconds_bucket", target, f"{bound_ms / 1000:g}")
            assert found[place] == sum(value <= bound_ms for value in late)
        assert found["target_lateness_seconds_bucket", target, "+Inf"] == len(late)
        assert abs(found["target_lateness_seconds_sum", target] - sum(late) / 1000) < 1e-9
        assert found["target_records_total", target, "delivered"] == len(late)
    assert found[("lateness_seconds_count",)] == len(everything)
    in_all = sum(value for _, value in everything) / 1000
    assert abs(found[("lateness_seconds_sum",)] - in_all) < 1e-9


@given(
    st.lists(st.tuples(st.sampled_from([None, *"abcd"]), st.sampled_from(["rolled", "expired"])))
)
def test_each_other_end_counts_once_where_its_target_is_known(
    ends: list[tuple[str | None, str]],
) -> None:
    """Invariant: the sum over all targets is the number of ends with a target."""
    metrics = TargetMetrics(2, BOUNDS_MS, BOUNDS_MS)
    metrics.ended(ends)
    found = {
        label[1:]: n
        for label, n in samples(metrics).items()
        if label[0] == "target_records_total" and label[2] != "delivered"
    }
    wanted = Counter(what for target, what in ends if target is not None)
    for what, count in wanted.items():
        assert sum(n for label, n in found.items() if label[1] == what) == count
    assert sum(found.values()) == wanted.total()


def test_a_target_never_goes_from_a_series_of_its_own_to_the_others() -> None:
    metrics = TargetMetrics(1, BOUNDS_MS, BOUNDS_MS)
    metrics.ended([("first", "requeued")])
    metrics.ended([("second", "requeued")] * 5)
    metrics.ended([("first", "requeued")])
    found = samples(metrics)
    assert found["target_records_total", "first", "requeued"] == 2
    assert found["target_records_total", OTHER, "requeued"] == 5


def test_what_waits_has_its_series_before_the_first_count() -> None:
    metrics = TargetMetrics(1, BOUNDS_MS, BOUNDS_MS)
    metrics.meet(["first", "second"])
    shown = {
        label: n for label, n in samples(metrics).items() if label[0] == "target_records_total"
    }
    names = [("target_records_total", name, "delivered") for name in ("first", OTHER)]
    assert shown == dict.fromkeys(names, 0)
