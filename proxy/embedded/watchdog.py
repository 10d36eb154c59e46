"""Runs a command and ends it when the process that asked for it is gone, however it ended.

A script of its own (`python -I -S watchdog.py PARENT_PID COMMAND...`), so that nothing of the
proxy needs importing. Asking for the parent's id works where the parent was killed outright, on
Linux and macOS alike, and whichever of the parent's threads started this.
"""

import os
import signal
import subprocess
import sys
from types import FrameType

ENDS = {signal.SIGTERM: signal.SIGTERM, signal.SIGUSR1: signal.SIGKILL}
"""What the command is sent for what the watchdog is sent. SIGKILL to both would end the watchdog
first, and its end would not say that the command is gone, and the ports that it listened on."""
LOOK_EVERY_S = 0.5
PATIENCE_LOOKS = 20


class Watchdog:
    """Stands between a parent and a child; all work is done in signal handlers."""

    def __init__(self, parent_pid: int, command: list[str]) -> None:
        self._parent_pid = parent_pid
        self._orphaned_looks = 0
        self._asked: signal.Signals | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._command = command

    def run(self) -> int:
        """Run the command to its end; returns its exit code as a shell would give it."""
        for number in ENDS:
            signal.signal(number, self._on_end)
        self._child = subprocess.Popen(self._command)
        if self._asked:
            self._child.send_signal(self._asked)
        signal.signal(signal.SIGALRM, self._on_look)
        signal.setitimer(signal.ITIMER_REAL, LOOK_EVERY_S, LOOK_EVERY_S)
        code = self._child.wait()
        self._rest()
        return code if code >= 0 else 128 - code

    def _rest(self) -> None:
        """A handler does not outlive the interpreter: an alarm after it would be the exit code."""
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
