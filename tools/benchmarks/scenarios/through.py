"""Scenario through: one fixed delay, so that records enter and leave at the same rate."""

from tools.benchmarks.steady import Ladder, Stream, Streamed, climb, run_stream
from tools.benchmarks.trial import World

HELD_P99_MS = 150
SETTLE_MS = 2_000


def measure(world: World) -> Ladder:
    scale = world.scale

    def run(rate: int) -> Streamed:
        delay_ms = scale.through_delay_ms
        settle_ms = delay_ms + min(SETTLE_MS, delay_ms)
        stream = Stream(rate, scale.through_s, (delay_ms, delay_ms), settle_ms)
        return run_stream(world, f"through-{rate}", stream)

    return climb(run, scale.through_rates, scale.refinements, HELD_P99_MS)
