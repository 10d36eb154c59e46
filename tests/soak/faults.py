"""What can go wrong, drawn from a seed: which fault, to whom, for how long, after which pause."""

from __future__ import annotations

from collections.abc import Iterator
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
}
"""Done to one of the brokers, or to the network before it."""
LONGEST_PAUSE_S: Final = 5.0


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
