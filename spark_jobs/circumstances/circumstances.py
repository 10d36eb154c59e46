"""What an audit knows besides the records, as small frames to be joined to them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.circumstances.lateness_limits import LIMITS, NO_LIMITS, LatenessLimits
from spark_jobs.circumstances.overdue_rules import OVERDUE_RULES, OverdueRules
from spark_jobs.circumstances.unseen import (
    UNSEEN,
    UNSEEN_BY_PARTITION,
    Unseen,
    by_partition,
    latest,
)
from spark_jobs.kafka.broker import Place
from spark_jobs.kafka.snapshot import OwnTopics
from spark_jobs.runtime.frames import Schema, local_rows

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
