"""Two proxies in turns on one broker: what a change costs or gains.

`python -m tests.benchmarks.two_proxies OTHER`, where OTHER is the command of another checkout
(`/path/to/it/.venv/bin/kafka-delay-proxy`); about an hour. `--help` names a part of it.
"""

import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated

import typer

from tests.benchmarks.__main__ import made_world
from tests.benchmarks.errors import BenchmarkError
from tests.benchmarks.processes import leave_on_sigterm
from tests.benchmarks.scale import FULL
from tests.benchmarks.scenarios import burst, ingest, pending
from tests.benchmarks.steady import Stream, run_stream, warm_broker
from tests.benchmarks.trial import World
from tests.benchmarks.turns import Figures, in_turns, ratios, told
from tests.benchmarks.verdict import Verdict

THIS, OTHER = "this", "other"
SCALE = replace(FULL, warm_broker_s=20, ingest_records=500_000, pending_records=3_000_000)
SCATTERED = Stream(rate=30_000, seconds=45, delay_ms=(0, 15_000), settle_ms=15_000)
LIGHT = Stream(rate=100, seconds=30, delay_ms=(1_000, 5_000), settle_ms=0)


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is measured, and how often: so often that its ratios can be told from the noise."""

    rounds: int
    measure: Callable[[World, str], Figures]


def measure(
    other: Annotated[str, typer.Argument(help="The other proxy's command.")],
    only: Annotated[str, typer.Option(help="Scenarios, with commas.")] = "",
    rounds: Annotated[int, typer.Option(help="Rounds of each; 0: as many as are usual.")] = 0,
) -> None:
    """Print the figures of this checkout's proxy and of another one, and their ratios."""
    leave_on_sigterm()
    commands = {THIS: (sys.executable, "-m", "proxy"), OTHER: tuple(shlex.split(other))}
    with made_world(None, commands[THIS], SCALE) as world:
        warm_broker(world)
        for name in filter(None, only.split(",")) if only else SCENARIOS:
            _compare(world, commands, name, rounds or SCENARIOS[name].rounds)


def _compare(world: World, commands: dict[str, tuple[str, ...]], name: str, rounds: int) -> None:
    def run(kind: str, trial_name: str) -> Figures:
        return SCENARIOS[name].measure(replace(world, proxy_command=commands[kind]), trial_name)

    found = in_turns((THIS, OTHER), rounds, name, run)
    for figure in found[0][THIS]:
        here, there = ([of[kind][figure] for of in found] for kind in (THIS, OTHER))
        against = told(ratios(found, THIS, OTHER, figure))
        print(f"{name}, {figure}: {told(here)}; other {told(there)}; ratio {against}", flush=True)


def _sound(verdict: Verdict) -> None:
    if verdict.faults:
        raise BenchmarkError(f"What came is not what was sent: {verdict}")


def _ingest(world: World, name: str) -> Figures:
    found = ingest.run_once(world, name)
    return {"records/s": found.records_per_s, "CPU us": found.cpu_us_per_record["proxy"]}


def _burst(world: World, name: str) -> Figures:
    found = burst.run_once(world, name)
    _sound(found.verdict)
    cpu_us = found.cpu_us_per_record["proxy"]
    return {"records/s": found.records_per_s, "first ms": found.first_record_ms, "CPU us": cpu_us}


def _steady(stream: Stream) -> Callable[[World, str], Figures]:
    def run(world: World, name: str) -> Figures:
        found = run_stream(world, name, stream)
        _sound(found.verdict)
        return {
            "p50 ms": found.lateness.p50_ms,
            "p99 ms": found.lateness.p99_ms,
            "CPU us": found.cpu_us_per_record["proxy"],
            "broker's CPU us": found.cpu_us_per_record["broker"],
            "memory MB": found.anonymous_mb,
        }

    return run


def _pending(world: World, name: str) -> Figures:
    found = pending.run_once(world, name)
    for back in found.restarts:
        _sound(back.verdict)
    if found.lost:
        raise BenchmarkError(f"{found.lost} records that waited are gone.")
    return {
        "memory MB": found.anonymous_mb,
        "peak memory MB": found.peak_anonymous_mb,
        "disk MB": found.disk_mb,
        "rebuilt/s": found.rebuilt_per_s,
        **{f"{back.how}, first s": back.first_delivery_s for back in found.restarts},
    }


SCENARIOS = {
    "ingest": Scenario(6, _ingest),
    "burst": Scenario(4, _burst),
    "scattered": Scenario(3, _steady(SCATTERED)),
    "light": Scenario(3, _steady(LIGHT)),
    "pending": Scenario(2, _pending),
}


if __name__ == "__main__":
    typer.run(measure)
