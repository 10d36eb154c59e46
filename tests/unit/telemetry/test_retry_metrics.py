"""Retries by group. Producers choose the names, so number and length are bounded."""

from __future__ import annotations

from proxy.telemetry.collectors import BEYOND, LONGEST_NAME, OTHER, RetryMetrics


def counts(metrics: RetryMetrics) -> dict[tuple[str, str], float]:
    samples = [sample for family in metrics.collect() for sample in family.samples]
    found = {(one.labels["group"], one.labels["attempt"]): one.value for one in samples}
    assert len(found) == len(samples)
    return found


def test_each_group_has_all_attempts_from_its_first_retry_on() -> None:
    metrics = RetryMetrics(1)
    assert counts(metrics)[OTHER, "1"] == 0
    metrics.ingested([("billing", 1), ("billing", 1), ("billing", 17), ("billing", 400)])
    found = counts(metrics)
    assert (found["billing", "1"], found["billing", "6"], found["billing", BEYOND]) == (2, 0, 2)


def test_groups_beyond_the_bound_too_long_ones_and_one_called_other_share_a_series() -> None:
    metrics = RetryMetrics(1)
    strange = [(OTHER, 2), ("x" * (LONGEST_NAME + 1), 2)]
    metrics.ingested([*strange, ("first", 2), *((f"group-{n}", 2) for n in range(1_000))])
    shown = {place: count for place, count in counts(metrics).items() if count}
    assert shown == {("first", "2"): 1, (OTHER, "2"): 1_002}
