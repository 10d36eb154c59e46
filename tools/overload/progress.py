"""Progress of generator and reader, shared between processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import compress
from multiprocessing import get_context
from typing import Final

_SPAWN: Final = get_context("spawn")


class Progress:
    def __init__(self, awaited: Sequence[bool]) -> None:
        """Create counters of 0. `awaited` says for each phase whether its records must arrive
        during the scenario."""
        self._awaited = awaited
        self._written = _SPAWN.RawArray("q", len(awaited))
        self._received = _SPAWN.RawValue("q", 0)
        self._is_over = _SPAWN.RawValue("b", 0)

    @property
    def written(self) -> list[int]:
        return [int(count) for count in self._written]

    @property
    def received(self) -> int:
        """Return the number of received records, duplicates included."""
        return int(self._received.value)

    @received.setter
    def received(self, count: int) -> None:
        self._received.value = count

    @property
    def is_complete(self) -> bool:
        awaited = sum(compress(self._written, self._awaited))
        return self.is_over and self.received >= awaited

    @property
    def is_over(self) -> bool:
        return bool(self._is_over.value)

    def end(self) -> None:
        self._is_over.value = 1

    def telling(self, phase: int) -> Callable[[int], None]:
        """Return a callback for a phase's generator, which takes the number of sent records."""
        return partial(self._tell, phase)

    def _tell(self, phase: int, count: int) -> None:
        self._written[phase] = count
