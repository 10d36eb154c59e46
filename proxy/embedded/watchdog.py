"""A script that runs a command, and ends the command when the parent process is gone.

The script imports nothing of the proxy. It polls the id of its parent process. The poll works on
Linux and macOS, and also if the parent process was killed.
"""

import os
import signal
import subprocess
import sys
from types import FrameType

ENDS = {signal.SIGTERM: signal.SIGTERM, signal.SIGUSR1: signal.SIGKILL}
"""Signal to the watchdog -> signal to the command. SIGUSR1 stands for SIGKILL, because SIGKILL to
the watchdog would not end the command."""
LOOK_EVERY_S = 0.5
PATIENCE_LOOKS = 20


class Watchdog:
    """The process between a parent and its command. All work is done in signal handlers."""

    def __init__(self, parent_pid: int, command: list[str]) -> None:
        self._parent_pid = parent_pid
        self._orphaned_looks = 0
        self._asked: signal.Signals | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._command = command

    def run(self) -> int:
        for number in ENDS:
            signal.signal(number, self._on_end)
        self._child = subprocess.Popen(self._command)
        if self._asked:
            self._child.send_signal(self._asked)
        signal.signal(signal.SIGALRM, self._on_look)
        signal.setitimer(signal.ITIMER_REAL, LOOK_EVERY_S, LOOK_EVERY_S)
        code = self._child.wait()
        self._ignore_signals()
        return code if code >= 0 else 128 - code

    def _ignore_signals(self) -> None:
        """Ignore signals and alarms. Otherwise a signal would set the exit code after Python has
        removed the handlers at exit."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number in (signal.SIGALRM, *ENDS):
            signal.signal(number, signal.SIG_IGN)

    def _on_end(self, number: int, _frame: FrameType | None) -> None:
        self._asked = ENDS[signal.Signals(number)]
        if self._child is not None:
            self._child.send_signal(self._asked)

    def _on_look(self, _signal: int, _frame: FrameType | None) -> None:
        if os.getppid() == self._parent_pid or self._child is None:
            return
        self._orphaned_looks += 1
        if self._orphaned_looks == 1:
            self._child.terminate()
        elif self._orphaned_looks > PATIENCE_LOOKS:
            self._child.kill()


if __name__ == "__main__":
    sys.exit(Watchdog(int(sys.argv[1]), sys.argv[2:]).run())
