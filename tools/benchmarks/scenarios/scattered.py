"""scattered: steady rates whose dues lie evenly, in random order, in the next 30 seconds.

The hard case for a scheduler: every millisecond holds a few records, each written at another
time. Judged once the first 30 seconds have passed, when as many fall due as are sent.
"""

from tools.benchmarks.steady import Ladder, Stream, Streamed, climb, run_stream
from tools.benchmarks.trial import World

HELD_P99_MS = 500


def measure(world: World) -> Ladder:
    """Lateness at each rate, and the highest rate held."""
    scale = world.scale

    def run(rate: int) -> Streamed:
        spread_ms = scale.scattered_spread_ms
        stream = Stream(rate, scale.scattered_s, (0, spread_ms), settle_ms=spread_ms)
        return run_stream(world, f"scattered-{rate}", stream)

    return climb(run, scale.scattered_rates, scale.refinements, HELD_P99_MS)
