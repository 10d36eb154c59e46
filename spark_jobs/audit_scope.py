"""The scope of an audit: instant, limits, overdue rules, and data that cannot be seen."""

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.kafka.broker import Place
from spark_jobs.kafka.snapshot import EndRange, OverdueText, OwnTopics
from spark_jobs.records.bounded_json import read_json, whole
from spark_jobs.records.headers import java_regex
from spark_jobs.runtime.frames import Schema, local_rows

LIMITS: Final = "array<struct<targets:string,max_ms:bigint>>"
"""`targets` is a regular expression. The first element that matches a target applies."""
USUAL_MS: Final = 60_000
"""If no limit is given, deliveries with more lateness are counted as late."""
LIMIT: Final = re.compile(r"(?:(?P<targets>[^=]+)=)?(?P<number>[0-9]{1,15})(?P<unit>ms|[smhd]?)")
UNITS_MS: Final = {"": 1, "ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True)
class LatenessLimits:
    """The allowed lateness of deliveries. A delivery beyond the limit is a violation."""

    most_ms: int | None = None
    """The limit for targets not in `by_target` and for records without a target. None: no limit."""
    by_target: tuple[tuple[str, int], ...] = ()


NO_LIMITS: Final = LatenessLimits()


def lateness_limits(texts: Iterable[str]) -> LatenessLimits:
    """Parse `2s` (for all targets), `orders-*=500ms` or `20` (ms). Raises ValueError."""
    most_ms: int | None = None
    by_target: list[tuple[str, int]] = []
    for text in texts:
        found = LIMIT.fullmatch(text)
        if found is None:
            raise ValueError(f"{text} is not a limit: write 2s, 500ms or 'orders-*=2s'")
        limit_ms = int(found["number"]) * UNITS_MS[found["unit"]]
        if found["targets"]:
            by_target.append((found["targets"], limit_ms))
        elif most_ms is None:
            most_ms = limit_ms
        else:
            raise ValueError(f"two limits for all targets, {most_ms}ms and {text}: give one")
    return LatenessLimits(most_ms, tuple(by_target))


OVERDUE_RULES: Final = "array<struct<said:string,targets:string,action:string>>"
"""`said`: the text of the rule in outcomes and dead letters. `targets`: a regular expression."""
DROP: Final = "drop"


class OverdueRule(NamedTuple):
    """The action for records that are overdue by more than `older_than_ms`.
    `targets`: a shell pattern.
    """

    targets: str
    older_than_ms: int
    action: str


@dataclass(frozen=True, slots=True)
class OverdueRules:
    """The rules by which the proxy has ended overdue records since `known_from_ms` (epoch ms).
    The proxy writes each rule down before it ends a record by the rule (docs/audit.md#verdicts).
    """

    known_from_ms: int
    rules: tuple[OverdueRule, ...]


def overdue_rules(texts: Iterable[OverdueText]) -> OverdueRules | None:
    """Return each rule in these texts once, or None if there are no texts."""
    found: dict[OverdueRule, None] = {}
    times_ms = []
    for text in texts:
        times_ms.append(text.written_ms)
        with suppress(ValueError, KeyError, TypeError):
            found |= {
                OverdueRule(str(r["targets"]), whole(r["older_than_ms"]), str(r["action"])): None
                for r in read_json(text.rules, list)
            }
    return OverdueRules(min(times_ms), tuple(found)) if times_ms else None


ALWAYS_MS: Final = 2**62
"""`until_ms` if records of any time may be unseen."""
OPEN_TRANSACTION: Final = "a transaction is open in"
UNSEEN: Final = "struct<until_ms:bigint,why:string,is_open:boolean>"
UNSEEN_BY_PARTITION: Final = f"array<{UNSEEN}>"
"""One element for each partition, null if the partition is seen completely."""


class Unseen(NamedTuple):
    """Why some of a partition's records may be unseen. They were written up to `until_ms`."""

    until_ms: int
    why: str
    is_open: bool = False
    """Whether a later audit will see the records."""


def unseen_of(ends: Iterable[EndRange], at_ms: int) -> dict[Place, Unseen]:
    """Return the partitions whose records an audit at `at_ms` does not see completely."""
    found = dict[Place, Unseen]()
    for one in ends:
        topic, partition, _start, end = one.range
        if one.is_compacted:
            seen = Unseen(ALWAYS_MS, f"{topic} is compacted")
        elif one.is_recreated:
            seen = Unseen(ALWAYS_MS, f"{topic} was created anew since an earlier audit")
        elif one.is_open:
            why = f"{OPEN_TRANSACTION} {topic}, partition {partition}, from offset {end} on"
            seen = Unseen(ALWAYS_MS, why, is_open=True)
        elif one.has_lost:
            first_ms = at_ms if one.first_ms is None else one.first_ms
            why = f"{topic}, partition {partition}, has deleted records of that time"
            seen = Unseen(first_ms, why)
        else:
            continue
        found[one.range.place] = seen
    return found


TARGETS: Final[Schema] = {
    "target_scope": "int",
    "target_topic": "string",
    "target_partitions": "bigint",
    "target_unseen": UNSEEN_BY_PARTITION,
}


@dataclass(frozen=True, slots=True)
class AuditScope:
    """Facts that the rules need besides the records."""

    at_ms: int
    own: OwnTopics
    partition_counts: Mapping[str, int] = field(default_factory=dict)
    """Partition counts of targets and own topics. Other topics' partitions are not checked."""
    unseen: Mapping[Place, Unseen] = field(default_factory=dict)
    overdue_rules: OverdueRules | None = None
    limits: LatenessLimits = NO_LIMITS
    reading_from_ms: int | None = None
    """The time at which the audit began to read, by its own clock."""
    seen_ms: int | None = None
    """The time at which the audit knew the ends of its ranges, by its own clock."""
    least_attempts: int = 1
    """The proxy makes at least this many publish attempts before it gives up a record."""
    settled_only: bool = False
    """Whether a record counts as pending until the committed position says that it has ended.
    An end that is visible earlier is ignored until then.
    """

    def frame(self, spark: SparkSession, number: int = 0) -> DataFrame:
        """Return one row, which is joined to the records.
        `scope`: the `number` of the scope, if records are judged within several scopes.
        `outcomes_unseen`: null if all outcomes are seen. `letters_unseen`: the Unseen with the
        latest time among all partitions of dead letters. `overdue_rules`: the rules since
        `overdue_known_ms`. The two overdue columns are null if the rules are unknown.
        """
        own, known = self.own, self.overdue_rules
        letters = [one for (topic, _), one in self.unseen.items() if topic == own.dead_letters]
        latest = max(letters, default=None)
        rules = known and [
            {
                "said": f"; {one.targets} allows {one.older_than_ms} (release.overdue)",
                "targets": java_regex([one.targets]),
                "action": one.action,
            }
            for one in known.rules
        ]
        limits = [
            {"targets": java_regex([pattern]), "max_ms": most}
            for pattern, most in self.limits.by_target
        ]
        columns: dict[str, tuple[str, Any]] = {
            "scope": ("int", number),
            "at_ms": ("bigint", self.at_ms),
            "ingress_topic": ("string", own.ingress),
            "outcomes_unseen": (UNSEEN_BY_PARTITION, self._unseen(own.outcomes)),
            "letters_unseen": (UNSEEN, latest and latest._asdict()),
            "settled_only": ("boolean", self.settled_only),
            "overdue_rules": (OVERDUE_RULES, rules),
            "overdue_known_ms": ("bigint", known and known.known_from_ms),
            "lateness_limits": (LIMITS, limits or None),
            "most_late_ms": ("bigint", self.limits.most_ms),
            "reading_from_ms": ("bigint", self.reading_from_ms),
            "seen_ms": ("bigint", self.seen_ms),
            "least_attempts": ("int", self.least_attempts),
        }
        row = {name: value for name, (_, value) in columns.items()}
        return local_rows(spark, [row], {name: kind for name, (kind, _) in columns.items()})

    def targets(self, spark: SparkSession, number: int = 0) -> DataFrame:
        counts = self.partition_counts
        topics = sorted({*counts, *(topic for topic, _ in self.unseen)} - set(self.own.all))
        rows = [
            dict(zip(TARGETS, (number, topic, counts.get(topic), self._unseen(topic)), strict=True))
            for topic in topics
        ]
        return local_rows(spark, rows, TARGETS)

    def _unseen(self, topic: str) -> list[dict[str, Any] | None] | None:
        seen = {number: one for (name, number), one in self.unseen.items() if name == topic}
        if not seen:
            return None
        count = max(self.partition_counts.get(topic, 0), max(seen) + 1)
        return [seen[number]._asdict() if number in seen else None for number in range(count)]
