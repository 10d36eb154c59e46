"""Counts of the timed steps of a loop."""

from prometheus_client import CollectorRegistry


def step_counts(registry: CollectorRegistry) -> dict[str, float]:
    samples = (sample for family in registry.collect() for sample in family.samples)
    name = "delay_proxy_loop_step_seconds_count"
    return {one.labels["step"]: one.value for one in samples if one.name == name}
