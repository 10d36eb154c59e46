"""Scenario burst: many records due at one instant."""

import time
from dataclasses import dataclass

from tools.benchmarks.errors import BenchmarkError
from tools.benchmarks.loads import send
from tools.benchmarks.processes import Job
from tools.benchmarks.reader import Arrivals, read
from tools.benchmarks.trial import Trial, World, trial
from tools.benchmarks.verdict import Lateness, Verdict, judge, lateness

PATIENCE_S = 120


@dataclass(frozen=True, slots=True)
class Burst:
    """One burst. Its rate is measured from the due instant to the last arrival."""

    records: int
    records_per_s: float
    first_record_ms: float
    lateness: Lateness
    verdict: Verdict
    cpu_us_per_record: dict[str, float]
    other_cores: float


@dataclass(frozen=True, slots=True)
class Bursts:
    median: Burst
    rounds: list[Burst]


def measure(world: World) -> Bursts:
    rounds = [run_once(world, f"burst-{number}") for number in range(world.scale.rounds)]
    by_rate = sorted(rounds, key=lambda burst: burst.records_per_s)
    return Bursts(by_rate[len(by_rate) // 2], rounds)


def run_once(world: World, name: str) -> Burst:
    world.say(f"{name}: {world.scale.burst_records} records due at one instant")
    with trial(world, name) as made:
        return _measure(made)


def _measure(made: Trial) -> Burst:
    scale = made.world.scale
    with Job(read, made.order(scale.burst_records, PATIENCE_S)) as reader:
        reader.wait_ready()
        instant_ms = int(time.time() * 1000) + scale.burst_lead_ms
        load = made.load(scale.burst_records, (0, 0), instant_ms)
        with Job(send, load) as generator:
            generator.result(PATIENCE_S)
        made.wait_until_ingested(PATIENCE_S)
        _check_in_time(instant_ms)
        meter = made.meter()
        arrivals = reader.result(PATIENCE_S + 30)
    bill = meter.bill({})
    last_ms = float(arrivals.lateness_ms.max(initial=1.0))
    return Burst(
        records=load.count,
        records_per_s=round(len(arrivals.due_ms) / last_ms * 1000),
        first_record_ms=_first_ms(arrivals),
        lateness=lateness(arrivals, instant_ms, instant_ms + 1),
        verdict=judge(arrivals, load),
        cpu_us_per_record=bill.us_per_record(load.count),
        other_cores=bill.other_cores,
    )


def _check_in_time(instant_ms: int) -> None:
    left_ms = instant_ms - time.time() * 1000
    if left_ms < 0:
        raise BenchmarkError(
            f"The burst's records were ingested {-left_ms:.0f} ms after their due: this machine "
            "needs a longer burst_lead_ms (tools/benchmarks/scale.py)."
        )


def _first_ms(arrivals: Arrivals) -> float:
    return round(float(arrivals.lateness_ms.min(initial=float("inf"))), 1)
