"""A Java program as a child that never outlives its parent."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from proxy.embedded.java import watchdog
from proxy.embedded.java.jre import java

STOP_TIMEOUT_S = 20


class JavaProcess:
    """Java under the watchdog, both in a process group of their own: Ctrl-C does not reach it."""

    def __init__(self, arguments: Sequence[str], log: BinaryIO, keep_open: Sequence[int]) -> None:
        """Start it; stdout and stderr go to `log`. The watchdog holds the files `keep_open`."""
        script = str(Path(watchdog.__file__))
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", script, str(os.getpid()), str(java()), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=tuple(keep_open),
        )

    @property
    def exit_code(self) -> int | None:
        """How it ended, None while it runs."""
        return self._process.poll()

    def wait(self) -> int:
        """Wait for its end; returns the exit code."""
        return self._process.wait()

    def stop(self) -> None:
        """SIGTERM, then SIGKILL for what is left after `STOP_TIMEOUT_S`."""
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """SIGKILL at once, as a crash would."""
        self.signal(signal.SIGKILL)
        self._process.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to Java and its watchdog, e.g. SIGSTOP to freeze the broker."""
        if self.exit_code is None:
            os.killpg(self._process.pid, number)
