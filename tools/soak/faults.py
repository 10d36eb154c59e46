"""Random faults from a seed: kind, victim, duration and pause."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from random import Random
from typing import Final, NamedTuple


class Kind(NamedTuple):
    """Kind of fault: its relative frequency, and its shortest and longest duration in seconds."""

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
"""Faults of one proxy. A freeze may last longer than the proxy's session in the group."""
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
"""Faults of one broker or its network."""
LONGEST_PAUSE_S: Final = 12.0
"""With this limit a lane has about 300 faults in an hour, and deliveries have time between them."""


KINDS: Final = {"proxies": OF_PROXIES, "brokers": OF_BROKERS}
"""Lane (a thread that applies faults) -> its kinds of faults. Both lanes run at the same time."""
Named = tuple[str, int]
"""Lane and number of a fault."""


class Fault(NamedTuple):
    """The fault that was drawn as number `number`. `choice` is at least 0 and below 1. It selects
    the victim or the variant."""

    number: int
    what: str
    pause_s: float
    lasts_s: float
    choice: float

    def one_of(self, these: list[int]) -> int:
        return these[int(self.choice * len(these))]


def drawn(kinds: dict[str, Kind], seed: str) -> Iterator[Fault]:
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
    """Selection from the faults that a seed gives: the `named` faults, or all faults if `named` is
    None. Kinds in `without` are left out."""

    named: frozenset[Named] | None = None
    without: frozenset[str] = frozenset()

    def of(self, seed: int, lane: str) -> Iterator[Fault]:
        """Return the faults of one lane. They are endless, unless faults are named or all kinds
        are left out."""
        if self.without >= KINDS[lane].keys():
            return iter(())
        faults = drawn(KINDS[lane], f"{seed} {lane}")
        if self.named is not None:
            numbers = {number for named, number in self.named if named == lane}
            some = islice(faults, max(numbers, default=-1) + 1)
            faults = (fault for fault in some if fault.number in numbers)
        return (fault for fault in faults if fault.what not in self.without)


def named(lane: str, text: str) -> set[Named]:
    """Return the faults named by a text like `3-17,20`. Raise ValueError for another form."""
    ranges = (part.partition("-") for part in text.split(",") if part)
    return {
        (lane, number)
        for first, _, last in ranges
        for number in range(int(first), int(last or first) + 1)
    }


def shrunk(faults: list[Named], fails: Callable[[list[Named]], bool]) -> list[Named]:
    """Return fewer faults with which the soak still fails. Halve the list while one half fails."""
    while len(faults) > 1:
        middle = len(faults) // 2
        halves = (faults[:middle], faults[middle:])
        failing = next((half for half in halves if fails(half)), None)
        if failing is None:
            return faults
        faults = failing
    return faults
