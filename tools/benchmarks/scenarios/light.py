"""Scenario light: lateness of few records with random delays."""

from tools.benchmarks.steady import Stream, Streamed, run_stream
from tools.benchmarks.trial import World


def measure(world: World) -> Streamed:
    """Judge all records, also the first. At this low rate the stream needs no time to settle."""
    scale = world.scale
    stream = Stream(scale.light_rate, scale.light_s, scale.light_delay_ms, settle_ms=0)
    return run_stream(world, "light", stream)
