"""What a `timer-id` costs: with and without it in turns, on one broker.

`python -m tests.benchmarks.what_ids_cost [--quick]`; about six minutes. Separate runs cannot be
compared for this: the machine changes more between them than ids cost.
"""

import sys
from dataclasses import replace

from tests.benchmarks.__main__ import made_world
from tests.benchmarks.scale import FULL, QUICK, Scale
from tests.benchmarks.scenarios.ingest import run_once
from tests.benchmarks.steady import Stream, run_stream, warm_broker
from tests.benchmarks.trial import World

WARM_S = 20
ROUNDS = 2
RATE, STEADY_S, SPREAD_MS = 30_000, 45, 15_000
QUICK_RATE, QUICK_S, QUICK_SPREAD_MS = 500, 5, 2_000


def measure(scale: Scale, stream: Stream) -> None:
    """Print a line a round: first ingest, then a steady rate with scattered dues."""
    with made_world(None, (sys.executable, "-m", "proxy"), scale) as world:
        warm_broker(world)
        for turn in range(ROUNDS):
            for name, turned in _in_turns(world):
                print(f"ingest, {name}:", run_once(turned, f"ingest-{turn}-{name}"), flush=True)
        for name, turned in _in_turns(world):
            print(f"scattered, {name}:", run_stream(turned, f"steady-{name}", stream), flush=True)


def _in_turns(world: World) -> list[tuple[str, World]]:
    return [
        ("plain", replace(world, scale=replace(world.scale, with_ids=False))),
        ("ids", replace(world, scale=replace(world.scale, with_ids=True))),
    ]


if __name__ == "__main__":
    if "--quick" in sys.argv[1:]:
        measure(QUICK, Stream(QUICK_RATE, QUICK_S, (0, QUICK_SPREAD_MS), QUICK_SPREAD_MS))
    else:
        measure(
            replace(FULL, warm_broker_s=WARM_S), Stream(RATE, STEADY_S, (0, SPREAD_MS), SPREAD_MS)
        )
