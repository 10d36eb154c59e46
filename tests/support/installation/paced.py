"""Thread that writes at a steady rate during a test."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

TICK_S = 0.02


class Paced(ABC):
    """Writer of about `per_second` records until the end of the block."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._write, name="load", daemon=True)

    @abstractmethod
    def _written(self) -> int:
        """Return the number of written records."""

    @abstractmethod
    def _write_one(self) -> None:
        """Write the next record."""

    @abstractmethod
    def _finish(self, error: BaseException | None) -> None:
        """Finish writing after the thread has ended. If an error ended the block, it is `error`."""

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
