"""What a `timer-id` costs: records without it, with it, and with the same bytes in a header that
means nothing to the proxy, in turns on one broker.

`python -m tests.benchmarks.what_ids_cost [--quick]`; about ten minutes. Separate runs cannot be
compared for this: the machine changes more between them than ids cost.
"""

import sys
from dataclasses import replace
from statistics import median

from proxy.headers import ID
from tests.benchmarks.__main__ import made_world
from tests.benchmarks.scale import FULL, QUICK, Scale
from tests.benchmarks.scenarios.ingest import run_once
from tests.benchmarks.steady import Stream, run_stream, warm_broker
from tests.benchmarks.trial import World

WARM_S = 20
ROUNDS = 5
RATE, STEADY_S, SPREAD_MS = 30_000, 45, 15_000
QUICK_RATE, QUICK_S, QUICK_SPREAD_MS = 500, 5, 2_000


def measure(scale: Scale, stream: Stream) -> None:
    """Print a line a round: first ingest, then a steady rate with scattered dues."""
    with made_world(None, (sys.executable, "-m", "proxy"), scale) as world:
        warm_broker(world)
        rates: dict[str, list[float]] = {}
        for turn in range(ROUNDS):
            for name, turned in _in_turns(world):
                ingested = run_once(turned, f"ingest-{turn}-{name}")
                print(f"ingest, {name}:", ingested, flush=True)
                rates.setdefault(name, []).append(ingested.records_per_s)
        medians = {name: f"{median(found):,.0f}" for name, found in rates.items()}
        print("ingest, median records/s:", medians, flush=True)
        for name, turned in _in_turns(world):
            print(f"scattered, {name}:", run_stream(turned, f"steady-{name}", stream), flush=True)


def _in_turns(world: World) -> list[tuple[str, World]]:
    return [
        (name, replace(world, scale=replace(world.scale, id_header=header)))
        for name, header in (("plain", None), ("same-bytes", "order-id"), ("ids", ID))
    ]


if __name__ == "__main__":
    if "--quick" in sys.argv[1:]:
        measure(QUICK, Stream(QUICK_RATE, QUICK_S, (0, QUICK_SPREAD_MS), QUICK_SPREAD_MS))
    else:
        measure(
            replace(FULL, warm_broker_s=WARM_S), Stream(RATE, STEADY_S, (0, SPREAD_MS), SPREAD_MS)
        )
