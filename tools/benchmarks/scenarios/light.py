"""light: few records with random delays. What a record on its own waits beyond its due."""

from tools.benchmarks.steady import Stream, Streamed, run_stream
from tools.benchmarks.trial import World


def measure(world: World) -> Streamed:
    """All records count for lateness: there is nothing to settle at such a rate."""
    scale = world.scale
    stream = Stream(scale.light_rate, scale.light_s, scale.light_delay_ms, settle_ms=0)
    return run_stream(world, "light", stream)
