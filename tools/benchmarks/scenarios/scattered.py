"""Scenario scattered: steady rates with random due times within the next 30 seconds. This is the
hard case for a scheduler, because every millisecond holds a few records with different write times.
Judging starts after 30 seconds, when as many records are due in a second as are sent."""

from tools.benchmarks.steady import Ladder, Stream, Streamed, climb, run_stream
from tools.benchmarks.trial import World

HELD_P99_MS = 500


def measure(world: World) -> Ladder:
    scale = world.scale

    def run(rate: int) -> Streamed:
        spread_ms = scale.scattered_spread_ms
        stream = Stream(rate, scale.scattered_s, (0, spread_ms), settle_ms=spread_ms)
        return run_stream(world, f"scattered-{rate}", stream)

    return climb(run, scale.scattered_rates, scale.refinements, HELD_P99_MS)
