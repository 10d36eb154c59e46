"""The highest anonymous memory of a process while something happens to it."""

import threading

from tests.benchmarks.accounting import anonymous_bytes

LOOK_EVERY_S = 1.0


class AnonymousPeak:
    """Looks once a second from a thread of its own until closed; `bytes` is the highest seen."""

    def __init__(self, pid: int) -> None:
        self.bytes = 0
        self._pid = pid
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Looks a last time and stops."""
        self._closed.set()
        self._thread.join()
        self._look()

    def _watch(self) -> None:
        while not self._closed.wait(LOOK_EVERY_S):
            self._look()

    def _look(self) -> None:
        self.bytes = max(self.bytes, anonymous_bytes(self._pid))
