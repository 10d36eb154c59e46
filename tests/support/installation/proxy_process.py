"""Proxy as a child process that can be stopped, killed, frozen and restarted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.support.installation.admin_page import admin_page
from tests.support.waiting import wait_for

REPOSITORY = Path(__file__).parents[3]
READY_WITHIN_S = 180
STOP_WITHIN_S = 90
SHARDS_WITHIN_S = 180
LOG_TAIL_LINES = 60
SHIFTED_CLOCK = """\
import time
from pathlib import Path
_time_ns, _monotonic = time.time_ns, time.monotonic
_path, _looked_s, _ahead_ns = Path({path!r}), -1.0, 0

def time_ns():
    global _looked_s, _ahead_ns
    if _monotonic() > _looked_s + 0.02:
        _looked_s, _ahead_ns = _monotonic(), int(float(_path.read_text() or 0) * 1_000_000_000)
    return _time_ns() + _ahead_ns

time.time_ns, time.time = time_ns, lambda: time_ns() / 1_000_000_000
"""
"""Shift of Python's clock only. With a shifted process clock librdkafka's timed waits hang."""


class ProxyProcess:
    """One `run` with its own settings. Each start writes its own log into `folder`."""

    module = "proxy"

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        self.folder = folder
        self.data_dir = folder / "data"
        self._starts = 0
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self.configure(settings)

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Write the settings of the next start. The admin port is free, and logs are JSON."""
        given = {
            "data_dir": str(self.data_dir),
            "admin": {"port": 0},
            "log": {"format": "json"},
            **settings,
        }
        (self.folder / "proxy.yaml").write_text(yaml.safe_dump(given), "utf-8")

    @property
    def pid(self) -> int:
        assert self._process is not None, "never started"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        return "" if not self._starts else self._log_path.read_text("utf-8", "replace")

    @property
    def whole_log(self) -> str:
        paths = [self._log_of(number) for number in range(1, self._starts + 1)]
        return "".join(path.read_text("utf-8", "replace") for path in paths)

    def start(self, clock_ahead_s: int | None = None) -> None:
        assert not self.is_running, "it runs already"
        self._starts += 1
        if clock_ahead_s is not None:
            self.shift_clock(clock_ahead_s)
        command = [sys.executable, "-m", self.module, "run", "--config", str(self.config_path)]
        with self._log_path.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                cwd=REPOSITORY,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def start_ready(self, clock_ahead_s: int | None = None) -> None:
        self.start(clock_ahead_s)
        self.wait_ready()

    def shift_clock(self, ahead_s: int) -> None:
        """Shift the process's wall clock. A running process follows only if it was started with a
        shifted clock."""
        folder = self.folder / "clock"
        folder.mkdir(exist_ok=True)
        ahead, changed = folder / "ahead-s", folder / "ahead-s.new"
        changed.write_text(str(ahead_s), "utf-8")
        changed.replace(ahead)
        shifted = SHIFTED_CLOCK.format(path=str(ahead))
        (folder / "sitecustomize.py").write_text(shifted, "utf-8")

    def environment(self) -> dict[str, str]:
        folder = self.folder / "clock"
        clock = {"PYTHONPATH": str(folder)} if folder.exists() else {}
        return {"DELAY_PROXY_LOG__LEVEL": "debug", **os.environ, **clock}

    def wait_ready(self) -> None:
        def ready_or_ended() -> bool:
            return self.get("/readyz")[0] == 200 or not self.is_running

        try:
            wait_for(ready_or_ended, READY_WITHIN_S, "a proxy that is ready")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log_tail()}") from None
        assert self.is_running, f"the proxy ended by itself:\n{self.log_tail()}"

    def stop(self) -> int:
        """Send SIGTERM and return the exit code. Fail after a timeout."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def wait(self, timeout_s: float = STOP_WITHIN_S) -> int:
        assert self._process is not None, "never started"
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"no end within {timeout_s} s:\n{self.log_tail()}") from None

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal. SIGSTOP freezes the process, and SIGCONT continues it."""
        assert self._process is not None, "never started"
        self._process.send_signal(number)

    def worker_pids(self) -> list[int]:
        columns = "pid=,ppid=,args="
        listed = subprocess.run(
            ["/bin/ps", "axwwo", columns], capture_output=True, text=True, check=True
        )
        rows = [line.split(None, 2) for line in listed.stdout.splitlines()]
        return [int(r[0]) for r in rows if int(r[1]) == self.pid and "spawn_main" in r[2]]

    def get(self, path: str) -> tuple[int, str]:
        """Return status and body of an admin page. Status 0 means no answer."""
        port = self._admin_port()
        return (0, "") if port is None else admin_page(port, path)

    def metric(self, name: str) -> float:
        """Return the sum of a metric over its labels, 0 if it is missing."""
        _status, text = self.get("/metrics")
        named = [line for line in text.splitlines() if line.split("{")[0].split(" ")[0] == name]
        return sum(float(line.rpartition(" ")[2]) for line in named)

    def shards(self) -> int:
        """Return the number of served partitions, or -1 while the proxy is not ready."""
        status, text = self.get("/readyz")
        return int(json.loads(text)["shards"]) if status == 200 else -1

    def await_shards(self, count: int) -> None:
        try:
            wait_for(lambda: self.shards() == count, SHARDS_WITHIN_S, f"{count} shards")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log_tail()}") from None

    def log_tail(self) -> str:
        lines = self.log.splitlines()[-LOG_TAIL_LINES:]
        return "\n".join([f"--- {self.folder.name}, start {self._starts}:", *lines])

    def _admin_port(self) -> int | None:
        for line in self.log.splitlines():
            if '"proxy started"' in line:
                return int(json.loads(line)["admin_port"])
        return None

    @property
    def config_path(self) -> Path:
        return self.folder / "proxy.yaml"

    @property
    def _log_path(self) -> Path:
        return self._log_of(self._starts)

    def _log_of(self, number: int) -> Path:
        return self.folder / f"run-{number:03}.log"
