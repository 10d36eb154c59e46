"""The highest anonymous memory of a process while something happens to it."""

from tests.benchmarks.accounting import anonymous_bytes
from tests.benchmarks.watch import Watch


class AnonymousPeak(Watch):
    """Looks once a second until closed; `bytes` is the highest seen."""

    def __init__(self, pid: int) -> None:
        super().__init__()
        self.bytes = 0
        self._pid = pid
        self.begin()

    def look(self) -> None:
        """Look once."""
        self.bytes = max(self.bytes, anonymous_bytes(self._pid))
