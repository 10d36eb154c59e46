"""What a `timer-id` costs: records without it, with it, and with the same bytes in a header that
means nothing to the proxy, in turns on one broker.

`python -m tests.benchmarks.what_ids_cost [--quick]`; about fifteen minutes. The machine changes
more between two runs, and even between two rounds, than ids cost. So a round measures each kind
twice, in mirrored order, and only figures of one round are compared: a machine that slows down
evenly meanwhile changes no ratio.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from statistics import mean, median

from proxy.records.headers import ID
from tests.benchmarks.__main__ import made_world
from tests.benchmarks.scale import FULL, QUICK, Scale
from tests.benchmarks.scenarios.ingest import run_once
from tests.benchmarks.steady import Stream, run_stream, warm_broker
from tests.benchmarks.trial import World

WARM_S = 20
ROUNDS = 7
INGEST_RECORDS = 500_000
KINDS = (("plain", None), ("same-bytes", "order-id"), ("ids", ID))
RATE, STEADY_S, SPREAD_MS = 30_000, 45, 15_000
QUICK_RATE, QUICK_S, QUICK_SPREAD_MS = 500, 5, 2_000


def measure(scale: Scale, stream: Stream) -> None:
    """Print what was measured: ingest round by round, then a steady rate with scattered dues."""
    with made_world(None, (sys.executable, "-m", "proxy"), scale) as world:
        warm_broker(world)
        rates = [_round(world, number) for number in range(ROUNDS)]
        for name, _header in KINDS:
            found = [of[name] for of in rates]
            print(f"ingest, {name}: {_told(found, ',.0f')} records/s", flush=True)
        for other in ("plain", "same-bytes"):
            ratios = [of["ids"] / of[other] for of in rates]
            print(f"ingest, ids against {other}, by round: {_told(ratios, '.2f')}", flush=True)
        for name, header in KINDS:
            found_steady = run_stream(_with_header(world, header), f"steady-{name}", stream)
            print(f"scattered, {name}:", found_steady, flush=True)


def _round(world: World, number: int) -> dict[str, float]:
    """Records/s of each kind: its time there and its time back."""
    took: dict[str, list[float]] = {}
    for way, kinds in (("there", KINDS), ("back", KINDS[::-1])):
        for name, header in kinds:
            one = run_once(_with_header(world, header), f"ingest-{number}-{way}-{name}")
            print(f"ingest, {name}:", one, flush=True)
            took.setdefault(name, []).append(1 / one.records_per_s)
    return {name: 1 / mean(times) for name, times in took.items()}


def _with_header(world: World, header: str | None) -> World:
    return replace(world, scale=replace(world.scale, id_header=header))


def _told(found: Sequence[float], style: str) -> str:
    return f"median {median(found):{style}} ({min(found):{style}} to {max(found):{style}})"


if __name__ == "__main__":
    if "--quick" in sys.argv[1:]:
        measure(QUICK, Stream(QUICK_RATE, QUICK_S, (0, QUICK_SPREAD_MS), QUICK_SPREAD_MS))
    else:
        full = replace(FULL, warm_broker_s=WARM_S, ingest_records=INGEST_RECORDS)
        measure(full, Stream(RATE, STEADY_S, (0, SPREAD_MS), SPREAD_MS))
