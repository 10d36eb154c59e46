"""The memory of a process over time."""

import time

from tools.benchmarks.accounting import anonymous_bytes
from tools.benchmarks.watch import Watch


class AnonymousSeries(Watch):
    """Looks once a second until closed; `samples`: moment (epoch ms) and bytes of each look."""

    def __init__(self, pid: int) -> None:
        super().__init__()
        self.samples: list[tuple[float, int]] = []
        self._pid = pid
        self.begin()

    def look(self) -> None:
        """Look once."""
        self.samples.append((time.time() * 1000, anonymous_bytes(self._pid)))
