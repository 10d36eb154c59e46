"""The measured proxy: its command in a process of its own."""

import http.client
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from tools.benchmarks.errors import BenchmarkError

LOG_TAIL_BYTES = 3_000


class ProxyProcess:
    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        bootstrap_servers: str,
        name: str,
        more: Mapping[str, object] | None = None,
    ) -> None:
        self._folder = folder
        self._admin_port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.data_dir = folder / "data"
        self.group_id = f"{name}-proxy"
        self._settings = folder / "proxy.yaml"
        self._command = [*command, "run", "--config", str(self._settings)]
        folder.mkdir(parents=True)
        settings = {**self._settings_of(bootstrap_servers, name), **(more or {})}
        self._settings.write_text(yaml.safe_dump(settings))

    @property
    def pid(self) -> int:
        return self._running().pid

    def start(self) -> None:
        with (self._folder / "proxy.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )

    def wait_ready(self, timeout_s: float = 60) -> None:
        """Wait until /readyz answers 200. If the proxy ends or takes too long, raise BenchmarkError
        with the end of its log."""
        deadline_s = time.monotonic() + timeout_s
        while self.get("/readyz")[0] != 200:
            if self._running().poll() is not None:
                raise BenchmarkError(f"The proxy ended by itself. Its log:\n{self.log_tail()}")
            if time.monotonic() > deadline_s:
                raise BenchmarkError(
                    f"The proxy was not ready after {timeout_s:.0f} s:\n{self.log_tail()}"
                )
            time.sleep(0.05)

    def stop(self, signal_number: int = signal.SIGTERM) -> None:
        if self._process is None:
            return
        self._process.send_signal(signal_number)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
        self._process = None

    def metric(self, name: str) -> float | None:
        """Return the sum of a metric over its labels, None if it is not published."""
        status, text = self.get("/metrics")
        if status != 200:
            return None
        values = [
            float(line.rpartition(" ")[2])
            for line in text.splitlines()
            if line.partition("{")[0].partition(" ")[0] == name
        ]
        return sum(values) if values else None

    @property
    def log(self) -> str:
        return (self._folder / "proxy.log").read_text("utf-8", "replace")

    def log_tail(self) -> str:
        return self.log[-LOG_TAIL_BYTES:]

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise BenchmarkError("The proxy is not running at this point of the measurement.")
        return self._process

    def post(self, path: str, body: object, timeout_s: float) -> tuple[int, str]:
        """Call the admin API. Return status and text. Without an answer the status is 0."""
        return self._ask("POST", path, json.dumps(body), timeout_s)

    def get(self, path: str, timeout_s: float = 2) -> tuple[int, str]:
        return self._ask("GET", path, None, timeout_s)

    def _ask(self, method: str, path: str, body: str | None, timeout_s: float) -> tuple[int, str]:
        headers = {} if body is None else {"Content-Type": "application/json"}
        connection = http.client.HTTPConnection("127.0.0.1", self._admin_port, timeout=timeout_s)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except OSError:
            return 0, ""
        finally:
            connection.close()

    def _settings_of(self, bootstrap_servers: str, name: str) -> dict[str, object]:
        return {
            "kafka": {"bootstrap.servers": bootstrap_servers},
            "topics": {
                "ingress": f"{name}.ingress",
                "dead_letters": f"{name}.dead-letters",
                "outcomes": f"{name}.outcomes",
                "settings": f"{name}.settings",
            },
            "group_id": self.group_id,
            "instance_id": f"benchmark-{os.getpid()}",
            "data_dir": str(self.data_dir),
            "admin": {"port": self._admin_port},
        }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
