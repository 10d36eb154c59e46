"""Comparison of CPU and lateness with one, two and four workers of one proxy. The numbers of
workers take turns on one broker. `python -m tools.benchmarks.several_workers` takes about half an
hour. `--help` shows how to run a part."""

import sys
from dataclasses import replace
from typing import Annotated

import typer

from tools.benchmarks.__main__ import made_world
from tools.benchmarks.errors import BenchmarkError
from tools.benchmarks.processes import leave_on_sigterm
from tools.benchmarks.scale import FULL
from tools.benchmarks.steady import Stream, run_stream, warm_broker
from tools.benchmarks.trial import World
from tools.benchmarks.turns import Figures, in_turns, told

SCALE = replace(FULL, warm_broker_s=20)
WORKERS = "1,2,4"
RATES = "10000,30000,45000"


def measure(
    workers: Annotated[str, typer.Option(help="Numbers of workers, comma-separated.")] = WORKERS,
    rates: Annotated[str, typer.Option(help="Total records/s, comma-separated.")] = RATES,
    rounds: Annotated[int, typer.Option(help="Rounds of each rate.")] = 1,
    seconds: Annotated[int, typer.Option(help="Length of each stream, in seconds.")] = 45,
) -> None:
    """Print lateness, CPU and memory by rate and number of workers.

    Delays are random, up to a third of the stream's length."""
    leave_on_sigterm()
    with made_world(None, (sys.executable, "-m", "proxy"), SCALE) as world:
        warm_broker(world)
        for rate in map(int, rates.split(",")):
            spread_ms = seconds * 1_000 // 3
            stream = Stream(rate, seconds, (0, spread_ms), settle_ms=spread_ms)
            _compare(world, stream, workers.split(","), rounds)


def _compare(world: World, stream: Stream, workers: list[str], rounds: int) -> None:
    def run(count: str, name: str) -> Figures:
        return _figures(replace(world, settings={"workers": int(count)}), name, stream)

    found = in_turns(workers, rounds, f"workers-{stream.rate}", run)
    for count in workers:
        figures = (f"{name} {told([of[count][name] for of in found])}" for name in found[0][count])
        print(f"{stream.rate}/s, {count} workers: {'; '.join(figures)}", flush=True)


def _figures(world: World, name: str, stream: Stream) -> Figures:
    found = run_stream(world, name, stream)
    if found.verdict.faults:
        raise BenchmarkError(f"Sent and arrived records differ: {found}")
    late, cpu_us = found.lateness, found.cpu_us_per_record
    return {
        "offered/s": found.offered_per_s,
        "p50 ms": late.p50_ms,
        "p99 ms": late.p99_ms,
        "p99.9 ms": late.p999_ms,
        "max ms": late.max_ms,
        "CPU us": cpu_us["proxy"],
        "broker's CPU us": cpu_us["broker"],
        "memory MB": found.anonymous_mb,
    }


if __name__ == "__main__":
    typer.run(measure)
