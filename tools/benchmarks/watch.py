"""Sampling once a second in the background."""

import threading
from abc import ABC, abstractmethod

EVERY_S = 1.0


class Watch(ABC):
    def __init__(self) -> None:
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    @abstractmethod
    def look(self) -> None:
        """Take one sample."""

    def begin(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._thread.join()
        self.look()

    def _watch(self) -> None:
        while not self._closed.wait(EVERY_S):
            self.look()
