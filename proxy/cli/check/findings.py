"""One line of `check`."""

from dataclasses import dataclass
from enum import StrEnum


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


def ok(subject: str, found: str) -> Finding:
    """All is well."""
    return Finding(Severity.OK, subject, found)


def advice(subject: str, found: str, remedy: str) -> Finding:
    """Works, and could be better."""
    return Finding(Severity.ADVICE, subject, found, remedy)


def warn(subject: str, found: str, remedy: str) -> Finding:
    """Works until something happens."""
    return Finding(Severity.WARN, subject, found, remedy)


def stop(subject: str, found: str, remedy: str) -> Finding:
    """Does not work."""
    return Finding(Severity.STOP, subject, found, remedy)
