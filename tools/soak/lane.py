"""A lane: one fault after the other, each made good again, in a thread of its own."""

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
    """A fault that has been done: when it began, in seconds of the soak, and how long it took."""

    lane: str
    number: int
    what: str
    whom: str
    began_s: float
    took_s: float


class Lane(ABC):
    """Does one fault after the other until it is told to end; each is made good again."""

    def __init__(self, name: str, scene: Scene, faults: Iterator[Fault]) -> None:
        self.done: list[Done] = []
        self.failed: BaseException | None = None
        self._name, self._scene, self._faults = name, scene, faults
        self._ending = threading.Event()
        self._began = time.monotonic()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def is_over(self) -> bool:
        """Whether there are no more faults, or one could not be done."""
        return not self._thread.is_alive()

    def begin(self) -> None:
        """Begin, in a thread."""
        self._thread.start()

    def end(self) -> None:
        """Let the last fault be made good; raises what the lane itself failed with."""
        self._ending.set()
        self._thread.join()
        if self.failed is not None:
            raise self.failed

    @abstractmethod
    def _do(self, fault: Fault) -> str:
        """Do it and make it good; to whom it was done."""

    def _last(self, seconds: float) -> None:
        self._ending.wait(seconds)

    def _run(self) -> None:
        try:
            for fault in self._faults:
                if self._ending.wait(fault.pause_s):
                    return
                self._one(fault)
        except BaseException as error:  # noqa: BLE001 (raised where the lane is ended)
            self.failed = error

    def _one(self, fault: Fault) -> None:
        began_s, whom = time.monotonic() - self._began, FAILED
        try:
            whom = self._do(fault)
        finally:
            took_s = time.monotonic() - self._began - began_s
            self.done.append(Done(self._name, fault.number, fault.what, whom, began_s, took_s))
