"""What can go wrong, drawn from a seed: which fault, to whom, for how long, after which pause."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from random import Random
from typing import Final, NamedTuple


class Kind(NamedTuple):
    """A fault: how often it is drawn, and the shortest and longest it lasts, in seconds."""

    weight: int
    least_s: float
    most_s: float


OF_PROXIES: Final = {
    "kill": Kind(6, 0, 4),
    "kill worker": Kind(2, 0, 1),
    "terminate": Kind(2, 0, 3),
    "freeze": Kind(4, 1, 14),
    "lose disk": Kind(2, 0, 3),
    "cut file": Kind(2, 0, 2),
    "flip bits": Kind(2, 0, 2),
    "disk full": Kind(2, 5, 20),
    "clock ahead": Kind(2, 2, 12),
    "clock behind": Kind(2, 2, 12),
    "clock ahead at start": Kind(2, 2, 12),
    "clock behind at start": Kind(2, 2, 12),
    "other settings": Kind(3, 0, 1),
    "other store": Kind(2, 0, 1),
    "storm": Kind(1, 0, 2),
}
"""Done to one of the proxies; a frozen one is frozen beyond its session, or not."""
OF_BROKERS: Final = {
    "kill leader": Kind(2, 2, 10),
    "kill coordinator": Kind(2, 2, 10),
    "stop": Kind(1, 2, 8),
    "freeze": Kind(2, 1, 10),
    "cut": Kind(4, 0, 1),
    "refuse": Kind(3, 1, 8),
    "slow": Kind(3, 4, 12),
    "no requests": Kind(2, 2, 12),
    "no answers": Kind(2, 2, 12),
    "add partitions": Kind(1, 0, 0),
    "target created anew": Kind(2, 0, 6),
}
"""Done to one of the brokers, or to the network before it."""
LONGEST_PAUSE_S: Final = 12.0
"""So each lane does some 300 faults an hour, and a proxy that was hit has time to deliver."""


KINDS: Final = {"proxies": OF_PROXIES, "brokers": OF_BROKERS}
"""The lanes, which work at the same time."""
Named = tuple[str, int]
"""A fault of a seed: its lane, and its number there."""


class Fault(NamedTuple):
    """One fault of the `number`-th draw. `choice`, in [0, 1): to whom, or how."""

    number: int
    what: str
    pause_s: float
    lasts_s: float
    choice: float

    def one_of(self, these: list[int]) -> int:
        """The one that it concerns."""
        return these[int(self.choice * len(these))]


def drawn(kinds: dict[str, Kind], seed: str) -> Iterator[Fault]:
    """Faults without end, the same for the same seed."""
    draw, names = Random(seed), list(kinds)
    weights = [kind.weight for kind in kinds.values()]
    number = 0
    while True:
        (what,) = draw.choices(names, weights)
        kind = kinds[what]
        lasts_s = draw.uniform(kind.least_s, kind.most_s)
        yield Fault(number, what, draw.uniform(0, LONGEST_PAUSE_S), lasts_s, draw.random())
        number += 1


class Choice(NamedTuple):
    """Which of a seed's faults are done: those named, if any are, but none of these kinds."""

    named: frozenset[Named] | None = None
    without: frozenset[str] = frozenset()

    def of(self, seed: int, lane: str) -> Iterator[Fault]:
        """The faults of one lane; they end only where they are named, or no kind is left."""
        if self.without >= KINDS[lane].keys():
            return iter(())
        faults = drawn(KINDS[lane], f"{seed} {lane}")
        if self.named is not None:
            numbers = {number for named, number in self.named if named == lane}
            some = islice(faults, max(numbers, default=-1) + 1)
            faults = (fault for fault in some if fault.number in numbers)
        return (fault for fault in faults if fault.what not in self.without)


def named(lane: str, text: str) -> set[Named]:
    """The faults that a text like `3-17,20` names. Raises ValueError."""
    ranges = (part.partition("-") for part in text.split(",") if part)
    return {
        (lane, number)
        for first, _, last in ranges
        for number in range(int(first), int(last or first) + 1)
    }


def shrunk(faults: list[Named], fails: Callable[[list[Named]], bool]) -> list[Named]:
    """Fewer of these faults, with which it still fails: one half of them, as often as that does."""
    while len(faults) > 1:
        middle = len(faults) // 2
        halves = (faults[:middle], faults[middle:])
        failing = next((half for half in halves if fails(half)), None)
        if failing is None:
            return faults
        faults = failing
    return faults
