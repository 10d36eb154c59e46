"""One line of `check`."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from proxy.config.settings import Settings
from proxy.kafka.access.rights import Right, grant


class Severity(StrEnum):
    """How bad it is: STOP keeps the proxy from running, WARN may cost a record or much time."""

    OK = "ok"
    ADVICE = "advice"
    WARN = "warn"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at, what was found, and what to do (empty when all is well)."""

    severity: Severity
    subject: str
    found: str
    remedy: str = ""

    def as_row(self) -> tuple[str, str, str, str]:
        """For a table."""
        return (self.severity.value, self.subject, self.found, self.remedy)

    def as_json(self) -> dict[str, str]:
        """For a program."""
        return {
            "verdict": self.severity.value,
            "subject": self.subject,
            "found": self.found,
            "remedy": self.remedy,
        }


ok = partial(Finding, Severity.OK)
advice = partial(Finding, Severity.ADVICE)
warn = partial(Finding, Severity.WARN)
stop = partial(Finding, Severity.STOP)


def lacks(
    subject: str, missing: Sequence[Right], settings: Settings, severity: Severity = Severity.STOP
) -> Finding:
    """Rights on one resource that the broker does not grant."""
    operations = ", ".join(right.operation for right in missing)
    found = f"the proxy's user lacks {operations}"
    return Finding(severity, subject, found, grant(missing, settings))
