"""Scenarios of the comparison: the loads that every peer gets, and their results."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tools.benchmarks.accounting import Meter
from tools.benchmarks.loads import Load, Loaded
from tools.benchmarks.peers.scale import PeerScale
from tools.benchmarks.peers.scheduler import Scheduler, memory
from tools.benchmarks.reader import Arrivals, ReadOrder
from tools.benchmarks.steady import OFFERED_ENOUGH
from tools.benchmarks.verdict import Lateness, Verdict, judge, lateness

HELD_P99_MS = (500, 2_000)
FIRST_PATIENCE_S = 120


@dataclass(frozen=True, slots=True)
class Course:
    scheduler: Scheduler
    waits: bool
    scale: PeerScale
    say: Callable[[str], None]

    def load(self, topic: str, count: int, delay_ms: tuple[int, int]) -> Load:
        """Create a topic and return a load for it. A relay's records are due at once."""
        self.scheduler.create(topic)
        return Load(
            self.scheduler.address,
            self.scheduler.ingress,
            topic,
            count,
            delay_ms=delay_ms if self.waits else (0, 0),
            value_bytes=self.scale.value_bytes,
        )

    def order(self, load: Load) -> ReadOrder:
        patience_s = self.scale.patience_s
        return ReadOrder(load.bootstrap_servers, load.target, load.count, patience_s)


@dataclass(frozen=True, slots=True)
class Rung:
    """Result of a steady stream. `served_us` is the CPU time per record that the scheduler and its
    broker used together. `other_cores` is the number of cores that all other processes used."""

    rate: int
    offered_per_s: float
    lateness: Lateness
    verdict: Verdict
    served_us: float
    cpu_us_per_record: Mapping[str, float]
    other_cores: float

    def held(self, p99_ms: float) -> bool:
        """Return whether records were sent at this rate, and each record came once and in time."""
        offered = self.offered_per_s >= OFFERED_ENOUGH * self.rate
        return offered and self.lateness.p99_ms <= p99_ms and not self.verdict.faults


@dataclass(frozen=True, slots=True)
class Streams:
    """Streams by rate. A rate is held if the p99 is within a limit. Rates rise up to the first rate
    that was not held. `held_per_s` has the highest held rate for each limit in ms."""

    by_rate: Mapping[str, Rung]
    held_per_s: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Burst:
    """Records due at one instant. The rate is measured from that instant to the last arrival. For a
    relay, it is measured from the first arrival. The rate is NaN if the records were sent or
    scheduled too late."""

    records_per_s: float
    first_ms: float | None
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Restart:
    """A stop during deliveries, and an immediate start. `first_delivery_s` is the time from the
    start to the first delivery."""

    stop_s: float
    first_delivery_s: float
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Pending:
    """Many pending records. `taken_per_s` is measured from the first send until all are scheduled.
    Memory is in MB, by process and for `all` processes together."""

    records: int
    taken_per_s: float | None
    anonymous_mb: Mapping[str, float]
    resident_mb: Mapping[str, float]
    clean: Restart
    killed: Restart


def warm_up(course: Course) -> None:
    """Run an unmeasured stream, because a cold JVM is slow."""
    scale = course.scale
    _stream(course, "warm", scale.warm_rate, scale.warm_s, (0, 1_000), 0)


def light(course: Course) -> Rung:
    scale = course.scale
    return _stream(course, "light", scale.light_rate, scale.light_s, scale.light_delay_ms, 0)


def streams(course: Course) -> Streams:
    """Measure steady rates with evenly spread due times. Records that are due in the first
    `spread_ms` are not judged. After that, as many records are due in each second as are sent."""
    scale, climbed = course.scale, list[Rung]()
    for rate in scale.rates:
        spread_ms = scale.spread_ms
        rung = _stream(course, f"{rate}", rate, scale.stream_s, (0, spread_ms), spread_ms)
        climbed.append(rung)
        if not rung.held(max(HELD_P99_MS)):
            break
    return Streams(
        {str(rung.rate): rung for rung in climbed},
        {str(limit): _held(climbed, limit) for limit in HELD_P99_MS},
    )


def _held(climbed: list[Rung], p99_ms: int) -> int:
    return max((rung.rate for rung in climbed if rung.held(p99_ms)), default=0)


def _stream(
    course: Course, name: str, rate: int, seconds: int, delay_ms: tuple[int, int], settle_ms: int
) -> Rung:
    course.say(f"{name}: {rate} records/s for {seconds} s")
    load = replace(course.load(f"peers-{name}", rate * seconds, delay_ms), rate_per_s=rate)
    with course.scheduler.read(course.order(load)) as reader:
        reader.wait_ready()
        meter = Meter(dict(course.scheduler.pids))
        loaded = _sent(course, load)
        arrivals = reader.result(course.scale.patience_s + 60)
    served_s = sum(meter.bill({}).cpu_s.values())
    bill = meter.bill({"generator": loaded.cpu_s, "reader": arrivals.cpu_s})
    return Rung(
        rate,
        round(loaded.offered_per_s, 1),
        lateness(arrivals, loaded.started_ms + settle_ms, loaded.ended_ms),
        judge(arrivals, load),
        round(served_s / load.count * 1e6, 1),
        bill.us_per_record(load.count),
        bill.other_cores,
    )


def burst(course: Course) -> Burst:
    """Measure many records due at one instant. A relay has no delays. So it is stopped while the
    records are sent, and finds all records when it starts."""
    scale, scheduler = course.scale, course.scheduler
    course.say(f"burst: {scale.burst_records} records due at one instant")
    load = course.load("peers-burst", scale.burst_records, (0, 0))
    with scheduler.read(course.order(load)) as reader:
        reader.wait_ready()
        if not course.waits:
            scheduler.stop()
        due_ms = int(time.time() * 1000) + (scale.burst_lead_ms if course.waits else 0)
        load = replace(load, anchor_ms=due_ms)
        _sent(course, load)
        if course.waits:
            scheduler.wait_until_taken(scale.patience_s)
        else:
            scheduler.start()
        is_late = course.waits and time.time() * 1000 > due_ms
        arrivals = reader.result(scale.patience_s + 60)
    if is_late:
        course.say("burst: not measured, because records were sent or scheduled too late")
    first_ms, last_ms = _first_ms(arrivals, 0), float(arrivals.received_ms.max(initial=0))
    from_ms = due_ms if course.waits else first_ms
    took_s = max(last_ms - from_ms, 1) / 1000
    return Burst(
        records_per_s=math.nan if is_late else round(len(arrivals.due_ms) / took_s),
        first_ms=round(first_ms - from_ms, 1) if course.waits else None,
        verdict=judge(arrivals, load),
    )


def pending(course: Course) -> Pending:
    scale, scheduler = course.scale, course.scheduler
    course.say(f"pending: {scale.pending_records} records due far away")
    load = course.load("peers-far", scale.pending_records, scale.pending_ms)
    started_s = time.monotonic()
    _sent(course, load)
    is_told = scheduler.wait_until_taken(scale.patience_s)
    taken_s = time.monotonic() - started_s
    time.sleep(scale.settle_s)
    used = memory(scheduler)
    return Pending(
        records=load.count,
        taken_per_s=round(load.count / taken_s) if is_told else None,
        anonymous_mb=_in_mb({name: one.anonymous_bytes for name, one in used.items()}),
        resident_mb=_in_mb(
            {name: one.anonymous_bytes + one.file_bytes for name, one in used.items()}
        ),
        clean=_restart(course, "stopped", scheduler.stop),
        killed=_restart(course, "killed", scheduler.kill),
    )


def _in_mb(used_bytes: Mapping[str, int]) -> dict[str, float]:
    every = {**used_bytes, "all": sum(used_bytes.values())}
    return {name: round(one / 1e6) for name, one in every.items()}


def _restart(course: Course, how: str, end: Callable[[], None]) -> Restart:
    """Stop the scheduler when half of the records are due, and start it at once."""
    scale, scheduler = course.scale, course.scheduler
    course.say(f"restart, {how}: {scale.restart_records} records fall due meanwhile")
    load = course.load(f"peers-{how}", scale.restart_records, (0, scale.restart_window_ms))
    with scheduler.read(course.order(load)) as reader:
        reader.wait_ready()
        first_due_ms = int(time.time() * 1000) + scale.restart_lead_ms
        load = replace(load, anchor_ms=first_due_ms)
        _sent(course, load)
        scheduler.wait_until_taken(scale.patience_s)
        half_ms = first_due_ms + scale.restart_window_ms / 2
        time.sleep(max(half_ms / 1000 - time.time(), 0))
        ended_s = time.monotonic()
        end()
        stop_s = time.monotonic() - ended_s
        time.sleep(0.2)  # deliveries from before the stop arrive in this time
        started_ms = time.time() * 1000
        scheduler.start()
        arrivals = reader.result(scale.patience_s + FIRST_PATIENCE_S)
    scheduler.wait_ready()
    first_s = (_first_ms(arrivals, started_ms) - started_ms) / 1000
    return Restart(round(stop_s, 2), round(first_s, 2), judge(arrivals, load))


def _sent(course: Course, load: Load) -> Loaded:
    with course.scheduler.send(load) as generator:
        return generator.result(course.scale.patience_s)


def _first_ms(arrivals: Arrivals, from_ms: float) -> float:
    received_ms = arrivals.received_ms
    return float(received_ms[received_ms >= from_ms].min(initial=float("inf")))


SCENARIOS: dict[str, Callable[[Course], object]] = {
    "light": light,
    "streams": streams,
    "burst": burst,
    "pending": pending,
}
NEEDS_WAITING = frozenset({"pending"})
