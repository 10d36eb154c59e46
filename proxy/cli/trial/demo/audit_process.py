"""The judge of the demo: the Spark audit of what it did, as a program of its own."""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from proxy.cli.audit import Options, audit_command
from proxy.config.settings import Settings
from proxy.embedded.guarded_process import GuardedProcess
from proxy.errors import ProxyError

OPTIONS: Final[Options] = {"json": True, "driver-memory": "1g"}
LIMIT_S: Final = 900.0
QUICK_JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For so few records the thorough compiler costs more than it gives."""
LAST_LINES: Final = 20


class AuditFailed(ProxyError):
    """The audit could not be made."""


@dataclass(frozen=True, slots=True)
class Audited:
    """How many records have which verdict, and how many of these are violations.

    `expected`: how many must have which verdict.
    """

    verdicts: Mapping[str, int]
    violations_by: Mapping[str, int]
    expected: Mapping[str, int]

    @property
    def violations(self) -> int:
        """How many records did not end as they must."""
        return sum(self.violations_by.values())

    @property
    def held(self) -> bool:
        """Whether each record has the verdict that is expected of it, and none is a violation."""
        return not self.violations and not self.unexpected

    @property
    def unexpected(self) -> dict[str, int]:
        """Verdicts that more or fewer records have than the plan expects, and how many have."""
        counts = {**dict.fromkeys(self.expected, 0), **self.verdicts}
        return {name: n for name, n in counts.items() if n != self.expected.get(name, 0)}

    def rows(self) -> list[list[str]]:
        """For a person: each verdict that was given, how often, and all together."""
        given = {name: count for name, count in self.verdicts.items() if count}
        rows = [
            [name.replace("_", " "), str(count), str(self.violations_by.get(name, 0))]
            for name, count in given.items()
        ]
        return [*rows, ["all", str(sum(given.values())), str(self.violations)]]

    def to_json(self) -> dict[str, Any]:
        """For a program."""
        return {
            "held": self.held,
            "verdicts": dict(self.verdicts),
            "violations": self.violations,
            "violations_by": dict(self.violations_by),
        }


class AuditProcess:
    """The audit of what `settings` name, in a process group that dies with this process."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        command, environment = audit_command(settings, {"output": folder / "audit", **OPTIONS})
        self._environment = {**environment, "JDK_JAVA_OPTIONS": QUICK_JAVA}
        self._command = command
        self._output, self._log = folder / "audit.json", folder / "audit.log"
        self._process: GuardedProcess | None = None

    def start(self) -> None:
        """Start it, and return at once."""
        with self._output.open("wb") as output, self._log.open("wb") as log:
            self._process = GuardedProcess(
                self._command, environment=self._environment, stdout=output, stderr=log
            )

    def result(self, expected: Mapping[str, int]) -> Audited:
        """What it found, once it has, beside what is expected. Raises AuditFailed."""
        assert self._process is not None, "never started"
        try:
            self._process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            raise AuditFailed(f"The audit took more than {LIMIT_S:.0f} s.") from None
        return self._read(expected)

    def _read(self, expected: Mapping[str, int]) -> Audited:
        """An audit that could not be made prints no result, whatever its exit code."""
        try:
            found = json.loads(self._output.read_text("utf-8").splitlines()[-1])
            return Audited(found["verdicts"], found["violations_by"], expected)
        except (ValueError, IndexError):
            words = self._log.read_text("utf-8", "replace").splitlines()[-LAST_LINES:]
            raise AuditFailed("The audit could not be made:", "\n".join(words)) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        """Kill what still runs, Spark's Java process with it."""
        if self._process is not None:
            self._process.kill()
