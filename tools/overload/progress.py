"""How far generator and reader are: numbers that the processes of a scenario share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import compress
from multiprocessing import get_context
from typing import Final

_SPAWN: Final = get_context("spawn")


class Progress:
    """Counts of records; to be handed to processes as they are started."""

    def __init__(self, awaited: Sequence[bool]) -> None:
        """Of each phase, whether its records come while the scenario lasts."""
        self._awaited = awaited
        self._written = _SPAWN.RawArray("q", len(awaited))
        self._received = _SPAWN.RawValue("q", 0)
        self._is_over = _SPAWN.RawValue("b", 0)

    @property
    def written(self) -> list[int]:
        """What the generator has sent, by phase."""
        return [int(count) for count in self._written]

    @property
    def received(self) -> int:
        """What has come, doubles included."""
        return int(self._received.value)

    @received.setter
    def received(self, count: int) -> None:
        self._received.value = count

    @property
    def is_complete(self) -> bool:
        """Whether nothing more will be written and as many have come."""
        awaited = sum(compress(self._written, self._awaited))
        return self.is_over and self.received >= awaited

    @property
    def is_over(self) -> bool:
        """Whether nothing more will be written."""
        return bool(self._is_over.value)

    def end(self) -> None:
        """Nothing more will be written."""
        self._is_over.value = 1

    def telling(self, phase: int) -> Callable[[int], None]:
        """For the generator of a phase: it tells how many it has sent so far."""
        return partial(self._tell, phase)

    def _tell(self, phase: int, count: int) -> None:
        self._written[phase] = count
