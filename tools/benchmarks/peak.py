"""Peak memory of a process."""

from tools.benchmarks.accounting import anonymous_bytes, cpu_s, resident
from tools.benchmarks.watch import Watch


class AnonymousPeak(Watch):
    """Peak anonymous memory, sampled once a second until closed."""

    def __init__(self, pid: int) -> None:
        super().__init__()
        self.bytes = 0
        self._pid = pid
        self.begin()

    def look(self) -> None:
        self.bytes = max(self.bytes, anonymous_bytes(self._pid))


class ResidentPeak(Watch):
    """Peak resident memory of a process and its children, mapped files included, with their CPU
    seconds."""

    def __init__(self, pid: int) -> None:
        super().__init__()
        self.bytes, self.cpu_s = 0, 0.0
        self._pid = pid
        self.begin()

    def look(self) -> None:
        found = resident(self._pid)
        self.bytes = max(self.bytes, found.anonymous_bytes + found.file_bytes)
        self.cpu_s = max(self.cpu_s, cpu_s(self._pid))
