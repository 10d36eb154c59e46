"""What an audit knows beside the records: limits of lateness, what it has not seen."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.kafka.broker import Place
from spark_jobs.kafka.positions import EndRange, OverdueText
from spark_jobs.kafka.snapshot import OwnTopics
from spark_jobs.records.bounded_json import read_json, whole
from spark_jobs.records.headers import java_regex
from spark_jobs.runtime.frames import Schema, local_rows

# How late deliveries may be before an audit calls it a violation.

LIMITS: Final = "array<struct<targets:string,max_ms:bigint>>"
"""targets: a regular expression; the first that matches counts."""
USUAL_MS: Final = 60_000
"""What is later than that is counted as late, though nobody asked for a limit."""
LIMIT: Final = re.compile(r"(?:(?P<targets>[^=]+)=)?(?P<number>[0-9]{1,15})(?P<unit>ms|[smhd]?)")
UNITS_MS: Final = {"": 1, "ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True)
class LatenessLimits:
    """In ms; by_target: for shell patterns, the first that matches counts; most_ms: for all other
    targets, and for records that are for none. None, and no patterns: nobody asked."""

    most_ms: int | None = None
    by_target: tuple[tuple[str, int], ...] = ()

    def told(self) -> list[dict[str, Any]] | None:
        """LIMITS; None without any, so that nothing is looked up."""
        rows = [{"targets": java_regex([one]), "max_ms": most} for one, most in self.by_target]
        return rows or None


NO_LIMITS: Final = LatenessLimits()


def lateness_limits(texts: Iterable[str]) -> LatenessLimits:
    """From texts like `2s` (for all) and `orders-*=500ms`; without unit: ms.

    Raises ValueError with what is wrong."""
    most_ms: int | None = None
    by_target: list[tuple[str, int]] = []
    for text in texts:
        found = LIMIT.fullmatch(text)
        if found is None:
            raise ValueError(f"{text} is no limit: write 2s, 500ms or 'orders-*=2s'")
        limit_ms = int(found["number"]) * UNITS_MS[found["unit"]]
        if found["targets"]:
            by_target.append((found["targets"], limit_ms))
        elif most_ms is None:
            most_ms = limit_ms
        else:
            raise ValueError(f"two limits for all targets, {most_ms}ms and {text}: give one")
    return LatenessLimits(most_ms, tuple(by_target))


# The rules by which the proxy ends records that are overdue, as it writes them to the settings
# topic before any record ends by them (docs/audit.md#verdicts).

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


# What an audit could not see of the topics where records end: deleted, or not settled yet.

ALWAYS_MS: Final = 2**62
"""Of what may be unseen whenever it was written, or will be written."""
OPEN_TRANSACTION: Final = "a transaction is open in"


class Unseen(NamedTuple):
    """Of a partition: what was written there up to `until_ms` (epoch ms) may be there unseen, or
    have been there; `why`, as the end of a sentence. is_open: a later audit will see it."""

    until_ms: int
    why: str
    is_open: bool = False


UNSEEN: Final = "struct<until_ms:bigint,why:string,is_open:boolean>"
UNSEEN_BY_PARTITION: Final = f"array<{UNSEEN}>"
"""Null for a partition of which all is seen."""


def unseen_of(ends: Iterable[EndRange], at_ms: int) -> dict[Place, Unseen]:
    """By partition, where an audit at `at_ms` does not see all that there ever was."""
    found = ((one, _unseen(one, at_ms)) for one in ends)
    return {(one.range.topic, one.range.partition): seen for one, seen in found if seen}


def _unseen(one: EndRange, at_ms: int) -> Unseen | None:
    topic, partition, _start, end = one.range
    if one.is_compacted:
        return Unseen(ALWAYS_MS, f"{topic} is compacted")
    if one.is_recreated:
        return Unseen(ALWAYS_MS, f"{topic} was created anew since an earlier audit")
    if one.is_open:
        why = f"{OPEN_TRANSACTION} {topic}, partition {partition}, from offset {end} on"
        return Unseen(ALWAYS_MS, why, is_open=True)
    if not one.has_lost:
        return None
    first_ms = at_ms if one.first_ms is None else one.first_ms
    return Unseen(first_ms, f"{topic}, partition {partition}, has deleted records of that time")


def by_partition(
    topic: str, unseen: Mapping[Place, Unseen], partitions: int
) -> list[Unseen | None] | None:
    """UNSEEN_BY_PARTITION of a topic; None where all of it is seen."""
    numbers = [number for name, number in unseen if name == topic]
    if not numbers:
        return None
    count = max(partitions, max(numbers) + 1)
    return [unseen.get((topic, number)) for number in range(count)]


def latest(parts: Sequence[Unseen | None] | None) -> Unseen | None:
    """Of a topic in any of whose partitions a record may lie."""
    return max((one for one in parts or () if one is not None), default=None)


# What an audit knows besides the records, as small frames to be joined to them.

CIRCUMSTANCES: Final[Schema] = {
    "at_ms": "bigint",
    "ingress_topic": "string",
    "outcomes_unseen": UNSEEN_BY_PARTITION,
    "letters_unseen": UNSEEN,
    "settled_only": "boolean",
    "overdue_rules": OVERDUE_RULES,
    "overdue_known_ms": "bigint",
    "lateness_limits": LIMITS,
    "most_late_ms": "bigint",
    "reading_from_ms": "bigint",
    "seen_ms": "bigint",
    "least_attempts": "int",
}
"""One row. outcomes_unseen: null where all is seen. letters_unseen: of any partition.
overdue_rules: all that counted since overdue_known_ms; both null where nothing is known of them."""
TARGETS: Final[Schema] = {
    "target_topic": "string",
    "target_partitions": "bigint",
    "target_unseen": UNSEEN_BY_PARTITION,
}
"""A row for each target of which anything is known."""


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What the rules need to know besides the records.

    at_ms: the audited instant. partition_counts: of the targets and own topics; without that of a
    target, partitions are not checked. unseen: where not all is seen that there ever was.
    overdue_rules: None where the proxy did not say. limits: how late is a violation. settled_only:
    what need not have ended yet is pending, whatever can be seen of it: an audit that goes on
    without end sees some topics further than others. reading_from_ms, seen_ms: when the audit began
    to read, and when it knew how far, by its own clock. least_attempts: so often the proxy tries
    before it gives a record up for its target.
    """

    at_ms: int
    own: OwnTopics
    partition_counts: Mapping[str, int] = field(default_factory=dict)
    unseen: Mapping[Place, Unseen] = field(default_factory=dict)
    overdue_rules: OverdueRules | None = None
    limits: LatenessLimits = NO_LIMITS
    reading_from_ms: int | None = None
    seen_ms: int | None = None
    least_attempts: int = 1
    settled_only: bool = False

    @property
    def has_unseen_outcomes(self) -> bool:
        """Whether outcomes may be, or have been, where they are not seen."""
        return any(topic == self.own.outcomes for topic, _partition in self.unseen)

    def frame(self, spark: SparkSession) -> DataFrame:
        """The row of CIRCUMSTANCES."""
        own, rules = self.own, self.overdue_rules
        letters = latest(self._unseen(own.dead_letters))
        values = (
            self.at_ms,
            own.ingress,
            _told(self._unseen(own.outcomes)),
            letters and letters._asdict(),
            self.settled_only,
            rules and [one.told() for one in rules.rules],
            rules and rules.known_from_ms,
            self.limits.told(),
            self.limits.most_ms,
            self.reading_from_ms,
            self.seen_ms,
            self.least_attempts,
        )
        return local_rows(spark, [dict(zip(CIRCUMSTANCES, values, strict=True))], CIRCUMSTANCES)

    def targets(self, spark: SparkSession) -> DataFrame:
        """A row of TARGETS for each topic of which anything is known."""
        counts = self.partition_counts
        topics = {*counts, *(topic for topic, _ in self.unseen)} - set(self.own.all)
        rows = [
            dict(zip(TARGETS, (topic, counts.get(topic), _told(self._unseen(topic))), strict=True))
            for topic in sorted(topics)
        ]
        return local_rows(spark, rows, TARGETS)

    def _unseen(self, topic: str) -> list[Unseen | None] | None:
        return by_partition(topic, self.unseen, self.partition_counts.get(topic, 0))


def _told(parts: Sequence[Unseen | None] | None) -> list[dict[str, Any] | None] | None:
    return None if parts is None else [one and one._asdict() for one in parts]
