"""A command as a child that never outlives this process."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from proxy.embedded import watchdog

STOP_TIMEOUT_S = 20


class GuardedProcess:
    """A command under the watchdog, both in a process group of their own: Ctrl-C does not reach it.

    Started at once. `environment`, `stdout` and `stderr` are as `subprocess` has them. The watchdog
    holds the file descriptors `keep_open`.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        stdout: IO[bytes] | None = None,
        stderr: IO[bytes] | int | None = None,
        keep_open: Sequence[int] = (),
    ) -> None:
        script = str(Path(watchdog.__file__))
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", script, str(os.getpid()), *command],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            pass_fds=tuple(keep_open),
        )

    @property
    def exit_code(self) -> int | None:
        """How it ended, None while it runs."""
        return self._process.poll()

    def wait(self, limit_s: float | None = None) -> int:
        """Wait for its end; returns the exit code. Raises subprocess.TimeoutExpired."""
        return self._process.wait(limit_s)

    def stop(self) -> int:
        """SIGTERM, then SIGKILL for what is left after `STOP_TIMEOUT_S`; returns the exit code."""
        if self.exit_code is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.kill()
        return self._process.wait()

    def kill(self) -> None:
        """SIGKILL to the command, as a crash would; it is gone when this returns, frozen or not."""
        self._process.send_signal(signal.SIGUSR1)
        self._process.send_signal(signal.SIGCONT)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGKILL)
            self._process.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send the whole group a signal, e.g. SIGSTOP to freeze it; nothing once it has ended."""
        if self.exit_code is None:
            os.killpg(self._process.pid, number)
