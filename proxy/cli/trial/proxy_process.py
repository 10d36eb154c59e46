"""The proxy as a child process, for `dev`, and for examples/demo.py."""

import json
import os
import sys
import time
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Self

from proxy.cli.admin_port import DIRECTLY
from proxy.config.settings import Settings
from proxy.config.sources import CONFIG_VARIABLE, variable_name
from proxy.embedded.guarded_process import GuardedProcess
from proxy.errors import ProxyError

LOOK_EVERY_S = 0.1
LAST_LINES = 20
NAMES_A_BROKER = (CONFIG_VARIABLE, variable_name(("kafka",)))


def proxy_environment(settings: Settings, data_dir: Path, admin_port: int) -> dict[str, str]:
    """The variables under which a proxy serves this broker, with its data in `data_dir`."""
    values = {
        ("kafka", "bootstrap.servers"): settings.bootstrap_servers,
        ("data_dir",): str(data_dir),
        ("admin", "port"): str(admin_port),
    }
    return {variable_name(path): text for path, text in values.items()}


class ProxyEnded(ProxyError):
    """The proxy process ended although nobody asked it to."""


class ProxyProcess:
    """`run` in a process group of its own, which dies with this process.

    `environment` holds settings as `DELAY_PROXY_…` variables. `log` is the file that takes its
    stderr; None leaves it where this process writes.
    """

    def __init__(
        self, environment: Mapping[str, str], admin_port: int, log: Path | None = None
    ) -> None:
        self.admin_port = admin_port
        self.environment = {**_without_broker(os.environ), **environment}
        self._log = log
        self._process: GuardedProcess | None = None

    @property
    def exit_code(self) -> int | None:
        """None while it runs, and before it was started."""
        return None if self._process is None else self._process.exit_code

    def start(self) -> None:
        """Start it; it is not ready yet."""
        command = [sys.executable, "-m", "proxy", "run"]
        with self._log.open("ab") if self._log else nullcontext() as log:
            self._process = GuardedProcess(command, environment=self.environment, stderr=log)

    def is_ready(self) -> bool:
        """Whether every shard has caught up. Raises ProxyEnded when the process is gone."""
        if self.exit_code is not None:
            raise ProxyEnded(
                f"The proxy ended by itself with exit code {self.exit_code}.", self.last_words()
            )
        try:
            url = f"http://127.0.0.1:{self.admin_port}/readyz"
            with DIRECTLY.open(url, timeout=2) as answer:
                return bool(json.load(answer)["ready"])
        except (OSError, ValueError):
            return False

    def await_ready(self, limit_s: float) -> None:
        """Wait until it is ready. Raises ProxyEnded when it ends or takes too long."""
        deadline = time.monotonic() + limit_s
        while not self.is_ready():
            if time.monotonic() > deadline:
                raise ProxyEnded(
                    f"The proxy was not ready after {limit_s:.0f} s.",
                    self.last_words(),
                )
            time.sleep(LOOK_EVERY_S)

    def last_words(self) -> str:
        """The end of its log, for an error; where the log is, when it goes to the terminal."""
        if self._log is None:
            return "Its last log lines say why."
        lines = self._log.read_text("utf-8", "replace").splitlines()
        return "\n".join(["Its last log lines:", *lines[-LAST_LINES:]])

    def kill(self) -> None:
        """SIGKILL to the whole group: the proxy gets no chance to tidy up."""
        if self._process is not None:
            self._process.kill()

    def stop(self) -> int:
        """SIGTERM, and the exit code; kills what has not ended within the limit."""
        return 0 if self._process is None else self._process.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()


def _without_broker(environment: Mapping[str, str]) -> dict[str, str]:
    """Less the variables that are meant for a broker elsewhere: its address, its credentials."""
    return {
        name: text
        for name, text in environment.items()
        if not name.upper().startswith(NAMES_A_BROKER)
    }
