"""listing: a scattered stream alone and while what waits is listed, page after page, in turns.

At a rate that the machine holds: beyond it the lateness says nothing of the listing.
"""

from dataclasses import dataclass, replace
from functools import partial
from statistics import median

from tests.benchmarks.errors import BenchmarkError
from tests.benchmarks.lister import Lister
from tests.benchmarks.steady import Stream, Streamed, run_stream
from tests.benchmarks.trial import Trial, World

STEADY_P99_MS = 200
LEAST_RATE = 100


@dataclass(frozen=True, slots=True)
class Listing:
    """`tried` until a rate was steady; then `streams` in turns alone and beside a listing; pages
    listed a second, and the slowest."""

    tried: list[Streamed]
    streams: list[Streamed]
    pages_per_s: float
    longest_page_s: float

    @property
    def p99_ratios(self) -> list[float]:
        """The p99 beside a listing against the one before it, of each round."""
        alone, beside = self.streams[::2], self.streams[1::2]
        pairs = zip(alone, beside, strict=True)
        return [two.lateness.p99_ms / one.lateness.p99_ms for one, two in pairs]


def measure(world: World) -> Listing:
    """In as many rounds as the others take."""
    scale = world.scale
    spread_ms = scale.scattered_spread_ms
    stream = Stream(scale.listing_rate, scale.scattered_s, (0, spread_ms), settle_ms=spread_ms)
    streams: list[Streamed] = []
    listers: list[Lister] = []

    def lister_of(made: Trial) -> Lister:
        listers.append(Lister(made.proxy))
        return listers[-1]

    tried = _tried(world, stream)
    stream = replace(stream, rate=tried[-1].rate)
    for number in range(scale.rounds):
        run = partial(run_stream, world, stream=stream)
        streams.append(run(f"listing-{number}-alone"))
        streams.append(run(f"listing-{number}-beside", beside=lister_of))
    return Listing(
        tried,
        streams,
        pages_per_s=median(one.pages_per_s for one in listers),
        longest_page_s=round(max(one.longest_s for one in listers), 3),
    )


def _tried(world: World, stream: Stream) -> list[Streamed]:
    """The stream at its rate, then at half of it, and so on, until it alone is steady."""
    tried: list[Streamed] = []
    while not (tried and tried[-1].held(STEADY_P99_MS)):
        if stream.rate < LEAST_RATE:
            raise BenchmarkError(f"No rate has a p99 of {STEADY_P99_MS} ms: look at the machine.")
        tried.append(run_stream(world, f"listing-at-{stream.rate}", stream))
        stream = replace(stream, rate=stream.rate // 2)
    return tried
