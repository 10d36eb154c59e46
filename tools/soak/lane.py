"""Lane: a thread that applies faults one after the other, and repairs each fault."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Final, NamedTuple

from tools.soak.faults import Fault
from tools.soak.scene import Scene

NOT_ALLOWED: Final = "nobody: not allowed here"
FAILED: Final = "failed"


class Done(NamedTuple):
    lane: str
    number: int
    what: str
    whom: str
    began_s: float
    took_s: float


class Lane(ABC):
    def __init__(self, name: str, scene: Scene, faults: Iterator[Fault]) -> None:
        self.done: list[Done] = []
        self.failed: BaseException | None = None
        self._name, self._scene, self._faults = name, scene, faults
        self._ending = threading.Event()
        self._began = time.monotonic()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def is_over(self) -> bool:
        """Return whether no faults are left, or a fault could not be applied."""
        return not self._thread.is_alive()

    def begin(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Wait until the last fault is repaired. If the lane failed, raise its error."""
        self._ending.set()
        self._thread.join()
        if self.failed is not None:
            raise self.failed

    @abstractmethod
    def _do(self, fault: Fault) -> str:
        """Apply a fault and repair it. Return the victim."""

    def _last(self, seconds: float) -> None:
        self._ending.wait(seconds)

    def _run(self) -> None:
        try:
            for fault in self._faults:
                if self._ending.wait(fault.pause_s):
                    return
                self._one(fault)
        except BaseException as error:  # noqa: BLE001 (`end` raises it)
            self.failed = error

    def _one(self, fault: Fault) -> None:
        began_s, whom = time.monotonic() - self._began, FAILED
        try:
            whom = self._do(fault)
        finally:
            took_s = time.monotonic() - self._began - began_s
            self.done.append(Done(self._name, fault.number, fault.what, whom, began_s, took_s))
