"""Scenario listing: pending records are listed during a stream with random due times. Turns with
and without a listing alternate, so that changes of the machine affect both kinds of turn. The
stream has a rate at which records are on time without a listing. At a higher rate, the lateness
says nothing about the listing."""

import threading
import time
from dataclasses import dataclass, replace
from random import Random
from statistics import median
from types import TracebackType
from typing import Self, TypeAlias

from tools.benchmarks.errors import BenchmarkError
from tools.benchmarks.lister import Lister
from tools.benchmarks.proxy_process import ProxyProcess
from tools.benchmarks.steady import Stream, Streamed, measured_stream, run_stream
from tools.benchmarks.trial import Trial, World, trial
from tools.benchmarks.verdict import Lateness, lateness_within

STEADY_P99_MS = 200
LEAST_RATE = 100
LEFT_OUT = 0.1
"""This share of a turn, at its beginning, is not judged. Work in progress in this time belongs to
the previous turn."""
SHORTEST, LONGEST = 0.4, 1.6
"""Range of random turn lengths, as multiples of the mean. Stores write every 8 to 20 seconds. Turns
of equal length could always meet those writes, or never."""

Spans: TypeAlias = list[tuple[float, float]]
"""Start and end times, in epoch ms."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Result of the scenario. `tried` holds the streams that were run to find a steady rate. Each
    round has one item in `streams`, `alone` and `beside`. `alone` is the lateness without a
    listing, and `beside` is the lateness with a listing."""

    tried: list[Streamed]
    streams: list[Streamed]
    alone: list[Lateness]
    beside: list[Lateness]
    pages_per_s: float
    longest_page_s: float

    @property
    def p99_ratios(self) -> list[float]:
        pairs = zip(self.alone, self.beside, strict=True)
        return [two.p99_ms / one.p99_ms for one, two in pairs]


def measure(world: World) -> Listing:
    scale = world.scale
    spread_ms = scale.scattered_spread_ms
    seconds = 2 * scale.scattered_s
    stream = Stream(scale.listing_rate, seconds, (0, spread_ms), settle_ms=spread_ms)
    tried = _tried(world, replace(stream, seconds=scale.scattered_s))
    stream = replace(stream, rate=tried[-1].rate)
    found = Listing(tried, [], [], [], 0.0, 0.0)
    turns: list[_Turns] = []
    for number in range(scale.rounds):
        with trial(world, f"listing-{number}") as made:
            turns.append(_measure_round(made, stream, found))
    listers = [lister for one in turns for lister in one.listers]
    return replace(
        found,
        pages_per_s=median(one.pages_per_s for one in listers),
        longest_page_s=round(max(one.longest_s for one in listers), 3),
    )


def _measure_round(made: Trial, stream: Stream, found: Listing) -> "_Turns":
    turn_s = made.world.scale.listing_turn_s
    made.world.say(f"{made.name}: {stream.rate} records/s, listed in turns of {turn_s:g} s or so")
    turns = _Turns(made.name, made.proxy, stream.settle_ms / 1000, turn_s)
    streamed, arrivals = measured_stream(made, stream, lambda _: turns)
    found.streams.append(streamed)
    found.alone.append(lateness_within(arrivals, turns.alone))
    found.beside.append(lateness_within(arrivals, turns.beside))
    return turns


class _Turns:
    """Thread that takes turns with and without a listing while its `with` block runs. The first
    turn begins after `settle_s`. Turns last about `turn_s`. The round's name seeds their random
    lengths. `alone` has the spans without a listing, and `beside` has the spans with one."""

    def __init__(self, name: str, proxy: ProxyProcess, settle_s: float, turn_s: float) -> None:
        self.alone: Spans = []
        self.beside: Spans = []
        self.listers: list[Lister] = []
        self._proxy, self._settle_s, self._turn_s = proxy, settle_s, turn_s
        self._random = Random(name)
        self._closed = threading.Event()
        self._failed: BenchmarkError | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closed.set()
        self._thread.join()
        if kind is None and self._failed is not None:
            raise self._failed
        if kind is None and not (self.alone and self.beside):
            raise BenchmarkError(
                "The stream ended before the first listing did. Make the stream longer."
            )

    def _run(self) -> None:
        self._closed.wait(self._settle_s)
        try:
            while not self._closed.is_set():
                self._take(self.alone)
                with Lister(self._proxy) as lister:
                    self._take(self.beside)
                self.listers.append(lister)
        except BenchmarkError as error:
            is_cut_short = self._closed.is_set()
            self._failed = None if is_cut_short else error

    def _take(self, spans: Spans) -> None:
        """Take one turn. Leave out an interrupted turn."""
        from_ms = time.time() * 1000 + LEFT_OUT * self._turn_s * 1000
        if not self._closed.wait(self._random.uniform(SHORTEST, LONGEST) * self._turn_s):
            spans.append((from_ms, time.time() * 1000))


def _tried(world: World, stream: Stream) -> list[Streamed]:
    """Halve the rate until the stream is on time without a listing."""
    tried: list[Streamed] = []
    while not (tried and tried[-1].held(STEADY_P99_MS)):
        if stream.rate < LEAST_RATE:
            raise BenchmarkError(
                f"No rate has a p99 within {STEADY_P99_MS} ms. Check what else this machine runs."
            )
        tried.append(run_stream(world, f"listing-at-{stream.rate}", stream))
        stream = replace(stream, rate=stream.rate // 2)
    return tried
