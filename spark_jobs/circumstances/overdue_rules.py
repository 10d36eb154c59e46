"""The rules by which the proxy ends records that are overdue, as it writes them to the settings
topic before any record ends by them (docs/audit.md#verdicts)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from spark_jobs.kafka.positions import OverdueText
from spark_jobs.records.bounded_json import read_json, whole
from spark_jobs.records.topic_names import java_regex

OVERDUE_RULES: Final = (
    "array<struct<said:string,targets:string,older_than_ms:bigint,action:string>>"
)
"""said: as outcomes and dead letters name the rule; targets: a regular expression."""
DROP: Final = "drop"
DEAD_LETTER: Final = "dead-letter"


class OverdueRule(NamedTuple):
    """What becomes of records for `targets` (a shell pattern) once they are so much overdue."""

    targets: str
    older_than_ms: int
    action: str

    def told(self) -> dict[str, Any]:
        """A row of OVERDUE_RULES."""
        return {
            "said": f"; {self.targets} allows {self.older_than_ms} (release.overdue)",
            "targets": java_regex([self.targets]),
            "older_than_ms": self.older_than_ms,
            "action": self.action,
        }


@dataclass(frozen=True, slots=True)
class OverdueRules:
    """All that ever counted since `known_from_ms` (epoch ms); what counted before is not known."""

    known_from_ms: int
    rules: tuple[OverdueRule, ...]

    def to_json(self) -> dict[str, Any]:
        """As a state on disk has it."""
        return {"known_from_ms": self.known_from_ms, "rules": [[*one] for one in self.rules]}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "OverdueRules":
        """Raises KeyError or TypeError for anything else."""
        return cls(stored["known_from_ms"], tuple(OverdueRule(*one) for one in stored["rules"]))


def overdue_rules(texts: Iterable[OverdueText]) -> OverdueRules | None:
    """All rules of these texts, each once; None where the proxy has written none."""
    found: dict[OverdueRule, None] = {}
    times_ms = []
    for text in texts:
        times_ms.append(text.written_ms)
        found |= dict.fromkeys(_rules(text.rules))
    return OverdueRules(min(times_ms), tuple(found)) if times_ms else None


def _rules(text: str) -> list[OverdueRule]:
    """What the text says; nothing where it is no list of rules."""
    try:
        return [
            OverdueRule(str(one["targets"]), whole(one["older_than_ms"]), str(one["action"]))
            for one in read_json(text, list)
        ]
    except (ValueError, KeyError, TypeError):
        return []
