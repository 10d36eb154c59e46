"""Cost of a `timer-id`. Records without an id, with an id, and with the same bytes in another
header are measured in turns on one broker. `python -m tools.benchmarks.what_ids_cost [--quick]`
takes about fifteen minutes."""

import sys
from dataclasses import replace

from proxy.protocol.headers import ID
from tools.benchmarks.__main__ import made_world
from tools.benchmarks.scale import FULL, QUICK, Scale
from tools.benchmarks.scenarios.ingest import run_once
from tools.benchmarks.steady import Stream, run_stream, warm_broker
from tools.benchmarks.trial import World
from tools.benchmarks.turns import Figures, in_turns, ratios, told

WARM_S = 20
ROUNDS = 7
INGEST_RECORDS = 500_000
HEADERS: dict[str, str | None] = {"plain": None, "same-bytes": "order-id", "ids": ID}
RATE = "records/s"
STEADY = Stream(30_000, 45, (0, 15_000), 15_000)
QUICK_STEADY = Stream(500, 5, (0, 2_000), 2_000)


def measure(scale: Scale, stream: Stream) -> None:
    """Print ingest rates by round, then a steady rate with scattered due times."""
    with made_world(None, (sys.executable, "-m", "proxy"), scale) as world:
        warm_broker(world)

        def ingest(kind: str, name: str) -> Figures:
            return {RATE: run_once(_with_header(world, HEADERS[kind]), name).records_per_s}

        rounds = in_turns(list(HEADERS), ROUNDS, "ingest", ingest)
        for kind in HEADERS:
            print(f"ingest, {kind}: {told([of[kind][RATE] for of in rounds])} {RATE}", flush=True)
        for other in ("plain", "same-bytes"):
            against = told(ratios(rounds, "ids", other, RATE))
            print(f"ingest, ids against {other}, by round: {against}", flush=True)
        for kind, header in HEADERS.items():
            found = run_stream(_with_header(world, header), f"steady-{kind}", stream)
            print(f"scattered, {kind}:", found, flush=True)


def _with_header(world: World, header: str | None) -> World:
    return replace(world, scale=replace(world.scale, id_header=header))


if __name__ == "__main__":
    if "--quick" in sys.argv[1:]:
        measure(QUICK, QUICK_STEADY)
    else:
        full = replace(FULL, warm_broker_s=WARM_S, ingest_records=INGEST_RECORDS)
        measure(full, STEADY)
