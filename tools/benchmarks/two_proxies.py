"""Comparison of two proxies on one broker, in turns or at once. `python -m
tools.benchmarks.two_proxies OTHER` takes about an hour. OTHER is the command of another checkout
(`/path/to/it/.venv/bin/kafka-delay-proxy`). `--help` shows how to run a part."""

import shlex
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Annotated, TypeAlias

import typer

from tools.benchmarks.__main__ import made_world
from tools.benchmarks.errors import BenchmarkError
from tools.benchmarks.processes import leave_on_sigterm
from tools.benchmarks.scale import FULL
from tools.benchmarks.scenarios import burst, ingest, pending
from tools.benchmarks.scenarios.idle import measure_idle
from tools.benchmarks.steady import Stream, Streamed, measure_stream, run_stream, warm_broker
from tools.benchmarks.trial import Trial, World, trial
from tools.benchmarks.turns import Figures, Rounds, in_turns, ratios, told
from tools.benchmarks.verdict import Verdict

THIS, OTHER = "this", "other"
SCALE = replace(
    FULL, warm_broker_s=20, ingest_records=500_000, pending_records=3_000_000, listing_s=0
)
"""Pending records are not listed, because the other proxy may lack that call."""
SCATTERED = Stream(rate=30_000, seconds=45, delay_ms=(0, 15_000), settle_ms=15_000)
LIGHT = Stream(rate=100, seconds=30, delay_ms=(1_000, 5_000), settle_ms=0)


Commands: TypeAlias = Mapping[str, tuple[str, ...]]
"""Command by kind of proxy."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """Measurement of both proxies. `rounds` rounds are enough to see ratios above the noise."""

    rounds: int
    measure: Callable[[World, Commands, str, int], Rounds]


def measure(
    other: Annotated[str, typer.Argument(help="The other proxy's command.")],
    only: Annotated[str, typer.Option(help="Scenarios, comma-separated.")] = "",
    rounds: Annotated[int, typer.Option(help="Rounds of each scenario. 0: the default.")] = 0,
) -> None:
    """Print the figures of this checkout's proxy and of the other proxy, and their ratios."""
    leave_on_sigterm()
    commands: Commands = {THIS: (sys.executable, "-m", "proxy"), OTHER: tuple(shlex.split(other))}
    with made_world(None, commands[THIS], SCALE) as world:
        warm_broker(world)
        for name in filter(None, only.split(",")) if only else SCENARIOS:
            _compare(world, commands, name, rounds or SCENARIOS[name].rounds)


def _compare(world: World, commands: Commands, name: str, rounds: int) -> None:
    found = SCENARIOS[name].measure(world, commands, name, rounds)
    for figure in found[0][THIS]:
        here, there = ([of[kind][figure] for of in found] for kind in (THIS, OTHER))
        against = told(ratios(found, THIS, OTHER, figure))
        print(f"{name}, {figure}: {told(here)}; other {told(there)}; ratio {against}", flush=True)


def _in_turns(
    measure: Callable[[World, str], Figures],
) -> Callable[[World, Commands, str, int], Rounds]:
    def rounds_of(world: World, commands: Commands, name: str, rounds: int) -> Rounds:
        def run(kind: str, trial_name: str) -> Figures:
            return measure(replace(world, proxy_command=commands[kind]), trial_name)

        return in_turns((THIS, OTHER), rounds, name, run)

    return rounds_of


def _at_once(
    measure: Callable[[Trial], Figures],
) -> Callable[[World, Commands, str, int], Rounds]:
    """Measure both proxies at the same time under equal loads. This shows differences that are
    smaller than the variation of the machine. The machine must have room for both proxies."""

    def rounds_of(world: World, commands: Commands, name: str, rounds: int) -> Rounds:
        found: Rounds = []
        for number in range(rounds):
            order = (THIS, OTHER) if number % 2 == 0 else (OTHER, THIS)
            worlds = {kind: replace(world, proxy_command=commands[kind]) for kind in order}
            found.append(_both(worlds, f"{name}-{number}", measure))
            print(f"{name}-{number}: {found[-1]}", flush=True)
        return found

    return rounds_of


def _both(
    worlds: Mapping[str, World], name: str, measure: Callable[[Trial], Figures]
) -> dict[str, Figures]:
    with ExitStack() as trials, ThreadPoolExecutor(len(worlds)) as pool:
        made = {
            kind: trials.enter_context(trial(world, f"{name}-{kind}"))
            for kind, world in worlds.items()
        }
        running = {kind: pool.submit(measure, one) for kind, one in made.items()}
        return {kind: one.result() for kind, one in running.items()}


def _sound(verdict: Verdict) -> None:
    if verdict.faults:
        raise BenchmarkError(f"Sent and arrived records differ: {verdict}")


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
        return _figures(run_stream(world, name, stream))

    return run


def _light(made: Trial) -> Figures:
    return _figures(measure_stream(made, LIGHT))


def _idle(made: Trial) -> Figures:
    return {"CPU ms/s": 1000 * measure_idle(made).cores["proxy"]}


def _figures(found: Streamed) -> Figures:
    _sound(found.verdict)
    return {
        "p50 ms": found.lateness.p50_ms,
        "p99 ms": found.lateness.p99_ms,
        "CPU us": found.cpu_us_per_record["proxy"],
        "broker's CPU us": found.cpu_us_per_record["broker"],
        "memory MB": found.anonymous_mb,
    }


def _pending(world: World, name: str) -> Figures:
    found = pending.run_once(world, name)
    for back in found.restarts:
        _sound(back.verdict)
    if found.lost:
        raise BenchmarkError(f"{found.lost} pending records are lost.")
    return {
        "memory MB": found.anonymous_mb,
        "peak memory MB": found.peak_anonymous_mb,
        "disk MB": found.disk_mb,
        "rebuilt/s": found.rebuilt_per_s,
        **{f"{back.how}, first s": back.first_delivery_s for back in found.restarts},
    }


SCENARIOS = {
    "ingest": Scenario(6, _in_turns(_ingest)),
    "burst": Scenario(4, _in_turns(_burst)),
    "scattered": Scenario(3, _in_turns(_steady(SCATTERED))),
    "light": Scenario(6, _at_once(_light)),
    "idle": Scenario(6, _at_once(_idle)),
    "pending": Scenario(2, _in_turns(_pending)),
}


if __name__ == "__main__":
    typer.run(measure)
