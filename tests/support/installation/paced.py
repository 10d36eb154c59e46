"""A thread that writes at a steady rate while a test does something else."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

TICK_S = 0.02


class Paced(ABC):
    """Writes `per_second` records, or about so many, until left."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._write, name="load", daemon=True)

    @abstractmethod
    def _written(self) -> int:
        """How many records so far."""

    @abstractmethod
    def _write_one(self) -> None:
        """Write the next record."""

    @abstractmethod
    def _finish(self, error: BaseException | None) -> None:
        """The thread has ended: bring what is written to its end; `error`: why it is left."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ending.set()
        self._thread.join()
        self._finish(error)

    def _write(self) -> None:
        started = time.monotonic()
        while not self._ending.wait(TICK_S):
            while self._written() < (time.monotonic() - started) * self._per_second:
                self._write_one()
