import time

from tools.benchmarks.accounting import anonymous_bytes
from tools.benchmarks.watch import Watch


class AnonymousSeries(Watch):
    """Samples of anonymous memory, one a second until closed: (epoch ms, bytes)."""

    def __init__(self, pid: int) -> None:
        super().__init__()
        self.samples: list[tuple[float, int]] = []
        self._pid = pid
        self.begin()

    def look(self) -> None:
        self.samples.append((time.time() * 1000, anonymous_bytes(self._pid)))
