"""What is counted of an audit's verdicts, all in one query."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as f

from spark_jobs.circumstances.unseen import OPEN_TRANSACTION
from spark_jobs.evidence.written_evidence import TableHash
from spark_jobs.requests.error_codes import BELIEVED
from spark_jobs.results.timeline import Axis, axis_of
from spark_jobs.verdicts.evaluation import VERDICTS
from spark_jobs.verdicts.rules.general_rules import RECORD_DELETED
from spark_jobs.verdicts.rules.rule import names
from spark_jobs.verdicts.verdict_names import (
    ARRIVED,
    DEAD_LETTERED,
    MEANINGS,
    NOT_DONE,
    OVERDUE,
    PENDING,
    UNVERIFIABLE,
)

IS_UNSURE: Final = f"""
((verdict = '{UNVERIFIABLE}' AND detail != '{RECORD_DELETED}')
  OR (verdict = '{PENDING}' AND startswith(detail, '{OPEN_TRANSACTION}')))
"""
"""SQL: whether a record could not be judged, for the reason that `detail` gives."""
_IS_BELIEVED: Final = (
    f"verdict = '{DEAD_LETTERED}' AND substring_index(detail, ':', 1) IN {names(BELIEVED)}"
    " AND NOT kind <=> 'refused'"
)
"""What is refused by the record itself is known."""
_GROUPS: Final = ("partition", "verdict", "is_violation")
_COUNTS: Final = {
    "given": "timestamp_ms IS NOT NULL",
    "late": "is_late",
    "attested": "is_attested",
    "believed": _IS_BELIEVED,
    "unsure": IS_UNSURE,
    "behind": "overdue_ms IS NOT NULL",
    "halves": "kind = 'prepare'",
}
_TIMES: Final = {
    "first_ms": "min(least(due, ended, wrong))",
    "first_written_ms": "min(written)",
    "last_ms": "max(greatest(due, ended, wrong, written))",
}


@dataclass(frozen=True, slots=True)
class VerdictCounts:
    """Of VERDICTS, by ingress partition, verdict, and whether it is a violation. given: of an
    ingress record that was read; halves: of a half message."""

    groups: Sequence[Row]

    @classmethod
    def of(cls, verdicts: DataFrame) -> "VerdictCounts":
        """Count VERDICTS with their times (`timeline.timed`)."""
        counts = [f"count_if({sql}) AS {name}" for name, sql in _COUNTS.items()]
        times = [f"{sql} AS {name}" for name, sql in _TIMES.items()]
        figures = [*map(f.expr, (*counts, *times)), *hash_sums(VERDICTS)]
        return cls(verdicts.groupBy(*_GROUPS).agg(*figures).collect())

    @property
    def verdicts(self) -> Mapping[str, int]:
        """How many have each verdict; of one that there is none of, 0."""
        return {**dict.fromkeys(MEANINGS, 0), **_by_verdict(self.groups)}

    @property
    def violations(self) -> Mapping[str, int]:
        """How many violations have each verdict; none with 0."""
        return _by_verdict(row for row in self.groups if row.is_violation)

    @property
    def given(self) -> Mapping[int, int]:
        """How many ingress records have a verdict, by partition."""
        found: dict[int, int] = {}
        for row in self.groups:
            if row.given:
                found[row.partition] = found.get(row.partition, 0) + row.given
        return found

    @property
    def behind(self) -> set[int]:
        """Partitions in which something is due and has not ended."""
        return {row.partition for row in self.groups if row.behind}

    @property
    def late(self) -> int:
        """Delivered later than was asked for, or than is usual."""
        return self._sum("late", ARRIVED)

    @property
    def overdue(self) -> int:
        """Due for longer than was asked for, or than is usual, and not ended."""
        return self._sum("late", NOT_DONE)

    @property
    def unjudged_overdue(self) -> int:
        """The same, where nobody asked for it to be judged."""
        return 0 if self.verdicts[OVERDUE] else self.overdue

    @property
    def attested(self) -> int:
        """Deliveries whose time is the broker's."""
        return self._sum("attested", ARRIVED)

    @property
    def believed(self) -> int:
        """Dead letters whose reason is one that no topic shows: their detail begins with its
        code."""
        return self._sum("believed")

    @property
    def unsure(self) -> int:
        """Records that could not be judged (IS_UNSURE)."""
        return self._sum("unsure")

    @property
    def halves(self) -> int:
        """Half messages."""
        return self._sum("halves")

    @property
    def hash(self) -> TableHash:
        """Of all rows."""
        return hash_of(self.groups)

    @property
    def axis(self) -> Axis | None:
        """Of time, for all that happened; None where nothing has a time."""
        first, written, last = (_there(self.groups, name) for name in _TIMES)
        return axis_of(
            min(first, default=None), min(written, default=None), max(last, default=None)
        )

    def _sum(self, name: str, verdicts: Sequence[str] | None = None) -> int:
        return sum(row[name] for row in self.groups if not verdicts or row.verdict in verdicts)


def hash_sums(columns: Iterable[str]) -> list[Column]:
    """Aggregates that `hash_of` makes a hash of."""
    found = [f.col(name) for name in columns]
    hashed = f.xxhash64(*found, *[one.isNull() for one in found]).cast("decimal(38,0)")
    return [f.count("*").alias("rows"), f.sum(hashed).alias("hash")]


def hash_of(sums: Iterable[Row]) -> TableHash:
    """Of rows whose `hash_sums` these are: the same for the same rows, whatever their order."""
    found = [(row.rows, int(row.hash or 0)) for row in sums]
    return TableHash(sum(rows for rows, _ in found), str(sum(hashed for _, hashed in found)))


def _by_verdict(groups: Iterable[Row]) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in groups:
        found[row.verdict] = found.get(row.verdict, 0) + row.rows
    return found


def _there(groups: Iterable[Row], name: str) -> list[int]:
    return [row[name] for row in groups if row[name] is not None]
