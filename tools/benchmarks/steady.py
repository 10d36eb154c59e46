"""Steady stream through the proxy, and the lateness of its records."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TypeAlias

from tools.benchmarks.accounting import anonymous_bytes
from tools.benchmarks.loads import send
from tools.benchmarks.processes import Job
from tools.benchmarks.reader import Arrivals, read
from tools.benchmarks.trial import Trial, World, trial
from tools.benchmarks.verdict import Lateness, Verdict, judge, lateness

OFFERED_ENOUGH = 0.97
WARM_RATE = 3_000

Beside: TypeAlias = Callable[[Trial], AbstractContextManager[object]]


@dataclass(frozen=True, slots=True)
class Stream:
    """`rate` records/s for `seconds`, each with a random delay from `delay_ms`. Records due between
    `settle_ms` and the end of sending are judged. In this time as many records are due each second
    as are sent."""

    rate: int
    seconds: int
    delay_ms: tuple[int, int]
    settle_ms: int


@dataclass(frozen=True, slots=True)
class Streamed:
    """Result of a stream. Rates are records/s. Memory is the proxy's, without mapped files."""

    rate: int
    records: int
    offered_per_s: float
    lateness: Lateness
    verdict: Verdict
    cpu_us_per_record: dict[str, float]
    other_cores: float
    anonymous_mb: float

    @property
    def was_offered(self) -> bool:
        return self.offered_per_s >= OFFERED_ENOUGH * self.rate and not self.verdict.faults

    def held(self, p99_ms: float) -> bool:
        return self.was_offered and self.lateness.p99_ms <= p99_ms


@dataclass(frozen=True, slots=True)
class Ladder:
    held_per_s: int
    p99_limit_ms: float
    streams: list[Streamed]


def _nothing(_: Trial) -> AbstractContextManager[object]:
    return nullcontext()


def run_stream(
    world: World,
    name: str,
    stream: Stream,
    beside: Beside = _nothing,
) -> Streamed:
    """Send one stream through a fresh proxy, with `beside` running at the same time."""
    world.say(f"{name}: {stream.rate} records/s for {stream.seconds} s")
    with trial(world, name) as made:
        return measure_stream(made, stream, beside)


def warm_broker(world: World) -> None:
    """Send an unmeasured stream through broker and proxy, because a cold JVM is slow."""
    seconds = world.scale.warm_broker_s
    run_stream(world, "warm-up", Stream(WARM_RATE, seconds, (0, 1_000), settle_ms=0))


def climb(
    run: Callable[[int], Streamed],
    rates: tuple[int, ...],
    refinements: int,
    p99_ms: float,
    *,
    is_short: bool = False,
) -> Ladder:
    """Try every rate. A rate is held if records were sent at this rate and their p99 is at most
    `p99_ms`. Then halve the gap between the highest held rate and the next higher rate,
    `refinements` times. If `is_short`, skip the rates above the first rate that is not held."""
    streams: list[Streamed] = []
    for rate in rates:
        streams.append(run(rate))
        if is_short and not streams[-1].held(p99_ms):
            break
    for _ in range(refinements):
        held = _held(streams, p99_ms)
        above = [tried.rate for tried in streams if tried.rate > held]
        streams.append(run((held + min(above)) // 2 if above else held * 4 // 3))
    streams.sort(key=lambda tried: tried.rate)
    return Ladder(_held(streams, p99_ms), p99_ms, streams)


def _held(streams: list[Streamed], p99_ms: float) -> int:
    return max((tried.rate for tried in streams if tried.held(p99_ms)), default=0)


def measure_stream(made: Trial, stream: Stream, beside: Beside = _nothing) -> Streamed:
    return measured_stream(made, stream, beside)[0]


def measured_stream(
    made: Trial, stream: Stream, beside: Beside = _nothing
) -> tuple[Streamed, Arrivals]:
    count = stream.rate * stream.seconds
    load = replace(made.load(count, stream.delay_ms), rate_per_s=stream.rate)
    patience_s = 3 * stream.seconds + stream.delay_ms[1] / 1000 + 60
    with Job(read, made.order(count, patience_s)) as reader:
        reader.wait_ready()
        meter = made.meter()
        with Job(send, load) as generator, beside(made):
            loaded = generator.result(patience_s)
        arrivals = reader.result(patience_s + 60)
    bill = meter.bill({"generator": loaded.cpu_s, "reader": arrivals.cpu_s})
    streamed = Streamed(
        rate=stream.rate,
        records=count,
        offered_per_s=round(loaded.offered_per_s, 1),
        lateness=lateness(arrivals, loaded.started_ms + stream.settle_ms, loaded.ended_ms),
        verdict=judge(arrivals, load),
        cpu_us_per_record=bill.us_per_record(count),
        other_cores=bill.other_cores,
        anonymous_mb=round(anonymous_bytes(made.proxy.pid) / 1e6, 1),
    )
    return streamed, arrivals
