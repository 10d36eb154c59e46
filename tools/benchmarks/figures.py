"""Main figures of a run with their goals."""

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from tools.benchmarks.scenarios.burst import Bursts
from tools.benchmarks.scenarios.idle import Idle
from tools.benchmarks.scenarios.ingest import Ingest
from tools.benchmarks.scenarios.listing import Listing
from tools.benchmarks.scenarios.overload import Overload
from tools.benchmarks.scenarios.pending import Pending
from tools.benchmarks.scenarios.purge import Purged
from tools.benchmarks.scenarios.relay import Relay
from tools.benchmarks.steady import Ladder, Streamed
from tools.benchmarks.verdict import Lateness

Goals = tuple[str, str, str]
"""Goals for the lateness: p50, p99 and p99.9."""

NO_GOALS: Goals = ("", "", "")
_SENSES: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    "<": operator.lt,
    ">=": operator.ge,
}
_GOALS_BY_PENDING = {10_000_000: ("<= 200", "<= 1.5"), 50_000_000: ("<= 600", "<= 6")}
"""Number of pending records -> goals for anonymous memory (MB) and for the first delivery after a
restart (s)."""


class Kind(StrEnum):
    RATE = "rate"
    SHARE = "share"
    """Ratio to another measurement of the same run. More is better."""
    COST = "cost"
    """Ratio to another measurement of the same run. Less is better."""
    SIZE = "size"
    TIME = "time"
    TAIL = "tail"
    """Lateness of the latest few records."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure. `goal` looks like `<= 30`. `spread` is (largest - smallest) / median of the
    rounds, None for one round."""

    name: str
    value: float
    unit: str
    kind: Kind
    goal: str = ""
    spread: float | None = None

    @property
    def reached(self) -> bool | None:
        """Return whether the goal was met. None means no goal or no value."""
        if not self.goal or math.isnan(self.value):
            return None
        sense, bound = self.goal.split()
        return _SENSES[sense](self.value, float(bound))


@dataclass(frozen=True, slots=True)
class Yardstick:
    """Rounds of the relay in the same run: rates, and CPU in us per record."""

    per_s: Sequence[float]
    cpu_us: Sequence[float]

    def share(self, name: str, per_s: Sequence[float], goal: str = "") -> Figure:
        return _quotient(f"{name} / relay", per_s, self.per_s, Kind.SHARE, goal)

    def cpu(self, name: str, us: Sequence[Mapping[str, float]], goal: str = "") -> Figure:
        spent = [one["proxy"] for one in us]
        return _quotient(f"{name} CPU / relay", spent, self.cpu_us, Kind.COST, goal)


def figures_of(results: Mapping[str, object]) -> list[Figure]:
    relay = results.get("relay")
    rounds = relay.rounds if isinstance(relay, Relay) else []
    yardstick = Yardstick(
        [one.records_per_s for one in rounds], [one.cpu_us_per_record["proxy"] for one in rounds]
    )
    found: list[Figure] = []
    for name, result in results.items():
        found.extend(_figures(name, result, yardstick))
    return found


def _figures(name: str, result: object, relay: Yardstick) -> Iterator[Figure]:
    match result:
        case Relay(median=middle):
            yield _rate("relay", middle.records_per_s)
            yield _rate("relay CPU", median(relay.cpu_us), "us a record")
        case Ingest():
            yield from _ingest(result, relay)
        case Bursts():
            yield from _burst(result, relay)
        case Streamed():
            yield from _lateness(name, result.lateness, ("<= 4", "<= 10", ""))
        case Ladder():
            yield from _ladder(name, result, relay)
        case _:
            yield from _without_yardstick(result)


def _without_yardstick(result: object) -> Iterator[Figure]:
    match result:
        case Overload():
            yield from _overload(result)
        case Idle():
            used = round(100 * sum(result.cores.values()), 1)
            yield _time("idle: proxy and broker", used, "% of a core", "<= 3")
            if result.alone_cores is not None:
                alone = round(100 * result.alone_cores, 1)
                yield _time("idle: the broker before", alone, "% of a core")
        case Pending():
            yield from _pending(result)
        case Listing():
            yield from _listing(result)
        case Purged():
            yield _time("purge until all are told", result.told_s, "s", "<= 120")
            late_ms = round(result.meanwhile.max_ms - result.before.max_ms, 1)
            yield _tail("purge makes others later by", late_ms, "ms", "<= 100")


def _rate(name: str, per_s: float, unit: str = "records/s", goal: str = "") -> Figure:
    return Figure(name, per_s, unit, Kind.RATE, goal)


def _time(name: str, value: float, unit: str, goal: str = "") -> Figure:
    return Figure(name, value, unit, Kind.TIME, goal)


def _size(name: str, value: float, unit: str, goal: str = "") -> Figure:
    return Figure(name, value, unit, Kind.SIZE, goal)


def _tail(name: str, value: float, unit: str, goal: str = "") -> Figure:
    return Figure(name, value, unit, Kind.TAIL, goal)


def _lateness(name: str, late: Lateness, goals: Goals = NO_GOALS) -> Iterator[Figure]:
    p50, p99, p999 = goals
    yield _time(f"{name} p50", late.p50_ms, "ms", p50)
    yield _tail(f"{name} p99", late.p99_ms, "ms", p99)
    yield _tail(f"{name} p99.9", late.p999_ms, "ms", p999)


def _quotient(
    name: str, values: Sequence[float], others: Sequence[float], kind: Kind, goal: str
) -> Figure:
    """Return the median of `values` divided by the median of `others`. It is NaN if `values` or
    `others` were not measured."""
    value, other = _median(values), _median(others)
    both = len(values) > 1 and len(others) > 1
    spread = round(_spread(values) + _spread(others), 3) if both else None
    return Figure(name, round(value / other, 2), "", kind, goal, spread)


def _median(values: Sequence[float]) -> float:
    return (median(values) if values else 0.0) or math.nan


def _spread(values: Sequence[float]) -> float:
    return (max(values) - min(values)) / _median(values)


def _ingest(ingest: Ingest, relay: Yardstick) -> Iterator[Figure]:
    yield _rate("ingest", ingest.median.records_per_s)
    yield relay.share("ingest", [one.records_per_s for one in ingest.rounds], ">= 0.88")
    yield relay.cpu("ingest", [one.cpu_us_per_record for one in ingest.rounds])


def _burst(bursts: Bursts, relay: Yardstick) -> Iterator[Figure]:
    yield _rate("burst", bursts.median.records_per_s)
    yield relay.share("burst", [one.records_per_s for one in bursts.rounds], ">= 0.97")
    yield relay.cpu("burst", [one.cpu_us_per_record for one in bursts.rounds])
    yield _time("burst first record", bursts.median.first_record_ms, "ms", "<= 100")


def _ladder(name: str, ladder: Ladder, relay: Yardstick) -> Iterator[Figure]:
    if name == "scattered":
        yield from _rung(name, ladder, 30_000, relay, goals=("<= 12", "<= 40", "<= 80"))
        yield from _rung(name, ladder, 45_000, relay, cpu="<= 2.0")
    else:
        yield from _rung(name, ladder, 50_000, relay, goals=("", "<= 150", ""))
    yield _rate(f"{name} held", ladder.held_per_s)
    goal = ">= 0.35" if name == "scattered" else ">= 0.38"
    yield relay.share(f"{name} held", [ladder.held_per_s], goal)


def _rung(
    name: str,
    ladder: Ladder,
    rate: int,
    relay: Yardstick,
    goals: Goals = NO_GOALS,
    cpu: str = "",
) -> Iterator[Figure]:
    for stream in ladder.streams:
        if stream.rate == rate:
            goals, cpu = (goals, cpu) if stream.was_offered else (NO_GOALS, "")
            yield from _lateness(f"{name} {rate}/s", stream.lateness, goals)
            yield relay.cpu(f"{name} {rate}/s", [stream.cpu_us_per_record], cpu)


def _overload(overload: Overload) -> Iterator[Figure]:
    climb = overload.climb
    yield _rate("overload: held before", climb.held_per_s if climb else overload.held_per_s)
    yield _rate("overload: offered / held", overload.offered_against_held, "")
    yield _tail("overload: worst p99", overload.worst_p99_s, "s")
    yield Figure("overload: worst p99 / excess", overload.worst_against_excess, "", Kind.COST)
    yield Figure("overload: short / long delays", overload.short_against_long, "", Kind.COST)
    recovered_within = f"<= {overload.overload_s:g}"
    yield _time("overload: recovered after", overload.recovered_s, "s", recovered_within)
    yield _size("overload: peak anonymous memory", overload.stream.anonymous_mb, "MB")


def _listing(listing: Listing) -> Iterator[Figure]:
    ratios = listing.p99_ratios
    name = "p99 beside a listing / alone"
    spread = round(_spread(ratios), 3) if len(ratios) > 1 else None
    yield _rate("listing beside", listing.tried[-1].rate)
    yield Figure(name, round(median(ratios), 2), "", Kind.COST, "<= 1.1", spread)
    yield _rate("listed meanwhile", listing.pages_per_s, "pages of 1,000 a second")
    yield _time("the slowest page", listing.longest_page_s, "s")


def _pending(pending: Pending) -> Iterator[Figure]:
    memory, first = _GOALS_BY_PENDING.get(pending.records, ("", ""))
    yield _size("pending anonymous memory", pending.anonymous_mb, "MB", memory)
    yield _size("pending peak while loading", pending.peak_anonymous_mb, "MB")
    yield _size("pending peak while listed", pending.listing_anonymous_mb, "MB", "< 500")
    yield _rate("pending, pages of 1,000", pending.pages_per_s, "a second")
    disk = "<= 300" if pending.value_bytes == 200 else ""
    yield _size("pending disk per record", pending.disk_bytes_per_record, "bytes", disk)
    *local, _ = pending.restarts
    for restart in local:
        yield _time(f"first delivery, {restart.how}", restart.first_delivery_s, "s", first)
    yield _rate("rebuilt from the broker", pending.rebuilt_per_s, goal=">= 100000")
