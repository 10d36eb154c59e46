"""The headline figures of a run, each beside the goal that issue 3 sets for it."""

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tests.benchmarks.scenarios.burst import Bursts
from tests.benchmarks.scenarios.ingest import Ingest
from tests.benchmarks.scenarios.listing import Listing
from tests.benchmarks.scenarios.pending import Pending
from tests.benchmarks.scenarios.purge import Purged
from tests.benchmarks.scenarios.relay import Relay
from tests.benchmarks.steady import Ladder, Streamed

_SENSES: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    "<": operator.lt,
    ">=": operator.ge,
}


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure: `goal` reads like `<= 30`; a figure without one is only told."""

    name: str
    value: float
    unit: str
    goal: str = ""

    @property
    def reached(self) -> bool | None:
        """Whether the goal was met; None when there is none, or no value."""
        if not self.goal or math.isnan(self.value):
            return None
        sense, bound = self.goal.split()
        return _SENSES[sense](self.value, float(bound))


def figures_of(results: Mapping[str, object]) -> list[Figure]:
    """All figures that the scenarios of this run allow, yardstick first."""
    relay = results.get("relay")
    relay_per_s = relay.median.records_per_s if isinstance(relay, Relay) else math.nan
    found: list[Figure] = []
    for name, result in results.items():
        found.extend(_figures(name, result, relay_per_s))
    return found


def _figures(name: str, result: object, relay_per_s: float) -> Iterator[Figure]:
    match result:
        case Relay(median):
            yield Figure("relay", median.records_per_s, "records/s")
        case Ingest(median):
            yield Figure("ingest", median.records_per_s, "records/s")
            yield _ratio("ingest", median.records_per_s, relay_per_s, ">= 0.7")
        case Bursts():
            yield from _burst(result, relay_per_s)
        case Streamed(lateness=lateness):
            yield Figure(f"{name} p50", lateness.p50_ms, "ms", "<= 8")
            yield Figure(f"{name} p99", lateness.p99_ms, "ms", "<= 30")
        case Ladder() if name == "scattered":
            yield from _rung(name, result, 30_000, p50="<= 15", p99="<= 80")
            yield Figure("scattered held", result.held_per_s, "records/s", ">= 60000")
            yield _ratio("scattered held", result.held_per_s, relay_per_s, ">= 0.35")
        case Ladder():
            yield from _rung(name, result, 50_000, p50="", p99="<= 150")
            yield Figure(f"{name} held", result.held_per_s, "records/s")
            yield _ratio(f"{name} held", result.held_per_s, relay_per_s, ">= 0.28")
        case Pending():
            yield from _pending(result)
        case Listing():
            ratio = round(result.p99_ratio, 2)
            yield Figure("p99 beside a listing / alone", ratio, "", "<= 1.1")
            yield Figure("listed meanwhile", result.pages_per_s, "pages of 1,000 a second")
            yield Figure("the slowest page", result.longest_page_s, "s")
        case Purged():
            yield Figure("purge until all are told", result.told_s, "s", "<= 120")
            late_ms = round(result.meanwhile.max_ms - result.before.max_ms, 1)
            yield Figure("purge makes others later by", late_ms, "ms", "<= 100")


def _ratio(name: str, per_s: float, relay_per_s: float, goal: str) -> Figure:
    return Figure(f"{name} / relay", round(per_s / relay_per_s, 2), "", goal)


def _burst(bursts: Bursts, relay_per_s: float) -> Iterator[Figure]:
    median = bursts.median
    yield Figure("burst", median.records_per_s, "records/s")
    yield _ratio("burst", median.records_per_s, relay_per_s, ">= 0.7")
    yield Figure("burst first record", median.first_record_ms, "ms", "<= 100")


def _rung(name: str, ladder: Ladder, rate: int, p50: str, p99: str) -> Iterator[Figure]:
    for stream in ladder.streams:
        if stream.rate == rate:
            yield Figure(f"{name} {rate}/s p50", stream.lateness.p50_ms, "ms", p50)
            yield Figure(f"{name} {rate}/s p99", stream.lateness.p99_ms, "ms", p99)


def _pending(pending: Pending) -> Iterator[Figure]:
    yield Figure("pending anonymous memory", pending.anonymous_mb, "MB", "< 500")
    yield Figure("pending peak while loading", pending.peak_anonymous_mb, "MB")
    yield Figure("pending peak while listed", pending.listing_anonymous_mb, "MB", "< 500")
    yield Figure("pending, pages of 1,000", pending.pages_per_s, "a second")
    yield Figure("pending disk per record", pending.disk_bytes_per_record, "bytes")
    *local, _ = pending.restarts
    for restart in local:
        yield Figure(f"first delivery, {restart.how}", restart.first_delivery_s, "s", "< 5")
    yield Figure("rebuilt from the broker", pending.rebuilt_per_s, "records/s", ">= 100000")
