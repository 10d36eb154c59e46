"""The highest memory of a process while something happens to it."""

from tools.benchmarks.accounting import anonymous_bytes, cpu_s, resident
from tools.benchmarks.watch import Watch


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


class ResidentPeak(Watch):
    """The same of all resident memory, mapped files included, of a process and those below it;
    and the CPU seconds that they had used when they were last seen."""

    def __init__(self, pid: int) -> None:
        super().__init__()
        self.bytes, self.cpu_s = 0, 0.0
        self._pid = pid
        self.begin()

    def look(self) -> None:
        """Look once."""
        found = resident(self._pid)
        self.bytes = max(self.bytes, found.anonymous_bytes + found.file_bytes)
        self.cpu_s = max(self.cpu_s, cpu_s(self._pid))
