"""What an audit knows besides the records, as small frames to be joined to them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.runtime.frames import Schema, local_rows

CIRCUMSTANCES: Final[Schema] = {
    "at_ms": "bigint",
    "outcomes_gone_ms": "bigint",
    "letters_gone_ms": "bigint",
    "settled_only": "boolean",
}
"""One row. outcomes_gone_ms, letters_gone_ms: as `gone_before_ms`, of these two topics."""
TARGETS: Final[Schema] = {
    "target_topic": "string",
    "target_partitions": "bigint",
    "target_gone_ms": "bigint",
}
"""A row for each target of which anything is known."""


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What the rules need to know besides the records.

    at_ms: the audited instant. partition_counts: of the targets; without, partitions are not
    checked. gone_before_ms: of topics that have deleted records, the timestamp of the first one
    left. settled_only: what need not have ended yet is pending, whatever can be seen of it: an
    audit that goes on without end sees some topics further than others. outcomes, dead_letters:
    the names of these topics.
    """

    at_ms: int
    outcomes: str
    dead_letters: str
    partition_counts: Mapping[str, int] = field(default_factory=dict)
    gone_before_ms: Mapping[str, int] = field(default_factory=dict)
    settled_only: bool = False

    def frame(self, spark: SparkSession) -> DataFrame:
        """The row of CIRCUMSTANCES."""
        gone_ms = self.gone_before_ms
        values = (
            self.at_ms,
            gone_ms.get(self.outcomes),
            gone_ms.get(self.dead_letters),
            self.settled_only,
        )
        row = dict(zip(CIRCUMSTANCES, values, strict=True))
        return local_rows(spark, [row], CIRCUMSTANCES)

    def targets(self, spark: SparkSession) -> DataFrame:
        """A row of TARGETS for each topic of which anything is known."""
        counts, gone_ms = self.partition_counts, self.gone_before_ms
        rows = [
            dict(zip(TARGETS, (topic, counts.get(topic), gone_ms.get(topic)), strict=True))
            for topic in sorted({*counts, *gone_ms})
        ]
        return local_rows(spark, rows, TARGETS)
