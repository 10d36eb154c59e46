"""Scenario overload: half a minute of 150 % of the held rate, then no new records. The held rate is
the highest rate at which the p99 of lateness stays within HELD_P99_MS.

The scenario reports sent, due and delivered records, lateness and memory by second. It answers
three questions. Is lateness larger than the excess of records explains? Are short and long delays
equally late? How long does recovery take? `make overload` is a different tool: it judges faults and
memory under other loads beyond capacity.

Delays are random, up to 5 seconds. A fifth is shorter than a second. Records with longer
delays are stored before their due. With delays up to 30 seconds, hardly any delay would be short,
and most records would be due after the overload."""

import math
import time
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np

from tools.benchmarks.accounting import Bill
from tools.benchmarks.anonymous_series import AnonymousSeries
from tools.benchmarks.by_second import (
    Course,
    Floats,
    Second,
    by_second,
    recovered_s,
    short_against_long,
)
from tools.benchmarks.loads import Load, Loaded, send
from tools.benchmarks.processes import Announce, Job
from tools.benchmarks.reader import read
from tools.benchmarks.steady import Ladder, Stream, Streamed, climb, run_stream
from tools.benchmarks.trial import Trial, World, trial
from tools.benchmarks.verdict import Lateness, judge, lateness

OVERLOAD = 1.5
LEAD_SHARE = 0.5
HELD_P99_MS = 500
START_MS = 5_000
"""Time for the two generators to start."""


@dataclass(frozen=True, slots=True)
class Overload:
    """Result of the scenario.

    `before` is the lateness while half of the held rate was sent. `stream` is the overload. The
    CPU and verdict in `stream` cover both parts. In `seconds`, second 0 is the first second of the
    overload. `recovered_s` is the time from the end of the overload until the p99 of arrivals
    stays within `limit_ms`. It is NaN if records are missing. `climb` is None if the held rate was
    given. If no rate was held, `held_per_s` is the lowest rate that was tried."""

    climb: Ladder | None
    held_per_s: int
    overload_s: float
    before: Lateness
    stream: Streamed
    limit_ms: float
    recovered_s: float
    short_against_long: float
    seconds: list[Second]

    @property
    def offered_against_held(self) -> float:
        return round(self.stream.offered_per_s / self.held_per_s, 2)

    @property
    def worst_p99_s(self) -> float:
        since = [second.worst_p99_ms for second in self.seconds if second.at_s >= 0]
        return round(float(np.nanmax(since)) / 1000, 2)

    @property
    def worst_against_excess(self) -> float:
        """Return the worst p99 divided by the time that the held rate needs for the excess."""
        behind_s = (self.offered_against_held - 1) * self.overload_s
        return round(self.worst_p99_s / behind_s, 2) if behind_s > 0 else float("nan")


@dataclass(frozen=True, slots=True)
class Sent:
    loaded: Loaded
    sent_ms: Floats


@dataclass(frozen=True, slots=True)
class _Run:
    lead: Loaded
    over: Loaded
    course: Course
    bill: Bill


def measure(world: World) -> Overload:
    ladder, held_per_s = _held(world)
    world.say(f"overload: {OVERLOAD:.0%} of {held_per_s} records/s for {world.scale.overload_s} s")
    with trial(world, "overload") as made:
        loads = _loads(made, held_per_s)
        return _told(made, ladder, held_per_s, loads, _run(made, *loads))


def _held(world: World) -> tuple[Ladder | None, int]:
    """Return the climb (streams at rising rates) and the held rate. If a rate was given, return
    None and this rate. If the climb held no rate, return the lowest rate that it tried."""
    if given := world.scale.overload_held_per_s:
        return None, given
    ladder = _climb(world)
    return ladder, ladder.held_per_s or min(stream.rate for stream in ladder.streams)


def send_from(announce: Announce, load: Load, begin_ms: float) -> Sent:
    time.sleep(max(begin_ms / 1000 - time.time(), 0))
    steps: list[tuple[int, float]] = []
    loaded = send(announce, load, lambda sent: steps.append((sent, time.time() * 1000)))
    sent, moments_ms = np.array(steps).T
    return Sent(loaded, np.repeat(moments_ms, np.diff(sent, prepend=0).astype(np.int64)))


def _climb(world: World) -> Ladder:
    scale = world.scale

    def run(rate: int) -> Streamed:
        spread_ms = scale.overload_spread_ms
        stream = Stream(rate, scale.overload_climb_s, (0, spread_ms), settle_ms=spread_ms)
        return run_stream(world, f"overload-held-{rate}", stream)

    return climb(run, scale.overload_rates, scale.refinements, HELD_P99_MS, is_short=True)


def _loads(made: Trial, held_per_s: int) -> tuple[Load, Load]:
    scale = made.world.scale
    slow_per_s, fast_per_s = int(held_per_s * LEAD_SHARE), int(held_per_s * OVERLOAD)
    lead = made.load(slow_per_s * scale.overload_lead_s, (0, scale.overload_spread_ms))
    return (
        replace(lead, rate_per_s=slow_per_s),
        replace(
            lead,
            count=fast_per_s * scale.overload_s,
            rate_per_s=fast_per_s,
            first_sequence=lead.count,
            seed=2,
        ),
    )


def _run(made: Trial, lead: Load, over: Load) -> _Run:
    scale = made.world.scale
    patience_s = 10 * scale.overload_s + scale.overload_lead_s + 60
    with Job(read, made.order(lead.count + over.count, patience_s)) as reader:
        reader.wait_ready()
        meter = made.meter()
        begin_ms = time.time() * 1000 + START_MS
        over_ms = begin_ms + scale.overload_lead_s * 1000
        with (
            closing(AnonymousSeries(made.proxy.pid)) as memory,
            Job(send_from, lead, begin_ms) as slow,
            Job(send_from, over, over_ms) as fast,
        ):
            before, beyond = slow.result(patience_s), fast.result(patience_s)
            arrivals = reader.result(patience_s + 60)
    cpu_s = before.loaded.cpu_s + beyond.loaded.cpu_s
    bill = meter.bill({"generator": cpu_s, "reader": arrivals.cpu_s})
    sent_ms = np.concatenate([before.sent_ms, beyond.sent_ms])
    return _Run(before.loaded, beyond.loaded, Course(arrivals, sent_ms, memory.samples), bill)


def _told(
    made: Trial, ladder: Ladder | None, held_per_s: int, loads: tuple[Load, Load], run: _Run
) -> Overload:
    scale, (lead, over), arrivals = made.world.scale, loads, run.course.arrivals
    start_ms, end_ms = run.over.started_ms, run.over.ended_ms
    before = lateness(arrivals, run.lead.started_ms + scale.overload_spread_ms, start_ms)
    limit_ms = min(max(HELD_P99_MS, 2 * before.p99_ms), 2 * HELD_P99_MS)
    count = lead.count + over.count
    verdict = judge(arrivals, replace(lead, count=count))
    ended_ms = math.nan if verdict.missing else run.over.acknowledged_ms
    return Overload(
        climb=ladder,
        held_per_s=held_per_s,
        overload_s=round((end_ms - start_ms) / 1000, 1),
        before=before,
        stream=Streamed(
            rate=int(held_per_s * OVERLOAD),
            records=count,
            offered_per_s=round(run.over.offered_per_s, 1),
            lateness=lateness(arrivals, start_ms, end_ms),
            verdict=verdict,
            cpu_us_per_record=run.bill.us_per_record(count),
            other_cores=run.bill.other_cores,
            anonymous_mb=round(max(size for _, size in run.course.memory) / 1e6, 1),
        ),
        limit_ms=round(limit_ms, 1),
        recovered_s=recovered_s(arrivals, ended_ms, limit_ms),
        short_against_long=short_against_long(run.course, start_ms, end_ms),
        seconds=by_second(run.course, start_ms),
    )
