"""What happened over time, counted in a few hundred steps at most, for the charts of the report."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as f

from spark_jobs.results.lateness_figures import figures
from spark_jobs.verdicts.rules.rule import names
from spark_jobs.verdicts.verdict_names import NOT_DONE

MOST_STEPS: Final = 240
CALENDAR_MS: Final = (0, 250_000_000_000_000)
"""What has a date: until the year 9892."""
STEPS_MS: Final = (
    *(100, 250, 500, 1_000, 5_000, 10_000, 30_000, 60_000, 300_000, 600_000, 1_800_000),
    *(3_600_000, 21_600_000, 86_400_000, 604_800_000, 2_592_000_000),
)
_IS_DONE: Final = f"verdict NOT IN {names(NOT_DONE)}"
_DUE_FROM: Final = "delivered_ms - lateness_ms"
"""When a record that was delivered could first have been: a due before the record was written
counts when it was written."""
_TIMES: Final = {
    "due": f"IF({_IS_DONE}, {_DUE_FROM}, NULL)",
    "written": f"IF(ended_ms IS NOT NULL OR NOT {_IS_DONE}, timestamp_ms, NULL)",
    "ended": f"IF({_IS_DONE} AND timestamp_ms IS NOT NULL, ended_ms, NULL)",
    "wrong": "IF(is_violation, coalesce(greatest(due_ms, timestamp_ms), ended_ms), NULL)",
}
"""SQL of the times, in epoch ms, at which something happened to a record. It waits from `written`
to `ended`; what has no end that can be seen, and need not wait, has neither. wrong: of a
violation, when it was due; where nothing was asked, when its end was written. What has a `due` here
was delivered."""


class Axis(NamedTuple):
    """Steps of equal length from `first_ms` on, in epoch ms."""

    first_ms: int
    step_ms: int
    steps: int

    @property
    def end_ms(self) -> int:
        """Where the last step ends."""
        return self.first_ms + self.steps * self.step_ms

    def step_of(self, at_ms: str) -> Column:
        """The number of the step; the first one for all that happened before it. Null of null."""
        step = f.floor((f.col(at_ms) - f.lit(self.first_ms)) / f.lit(self.step_ms))
        return f.when(step < 0, f.lit(0)).otherwise(step.cast("int"))


class LateStep(NamedTuple):
    """How late the deliveries were that were due in a step."""

    p50_ms: int
    p99_ms: int
    max_ms: int


class Timeline(NamedTuple):
    """By step: how many records were due, delivered, and waiting when it ended. late: None where
    nothing was due. violations: of each verdict, how many, by the steps that have any."""

    axis: Axis
    due: Sequence[int]
    delivered: Sequence[int]
    waiting: Sequence[int]
    late: Sequence[LateStep | None]
    violations: Mapping[str, Mapping[int, int]]


def timeline(verdicts: DataFrame, at_ms: int) -> Timeline | None:
    """Of VERDICTS given at that moment; None where nothing in them has a time.

    What is due later is a violation of that moment.
    """
    times = _times(verdicts, at_ms)
    axis = _axis(times)
    if axis is None:
        return None
    late = _by_step(times, axis, "due", *figures())
    written = _by_step(times, axis, "written", f.count("*").alias("n"))
    counts = f.count("*").alias("n"), f.count("due").alias("delivered")
    ended = _by_step(times, axis, "ended", *counts)
    moved = (
        (one.n if one else 0) - (other.n if other else 0)
        for one, other in zip(written, ended, strict=True)
    )
    return Timeline(
        axis,
        [row.records if row else 0 for row in late],
        [row.delivered if row else 0 for row in ended],
        [*accumulate(moved)],
        [LateStep(row.p50_ms, row.p99_ms, row.max_ms) if row else None for row in late],
        _violations(times, axis),
    )


def _times(verdicts: DataFrame, at_ms: int) -> DataFrame:
    low, high = CALENDAR_MS
    most = {**dict.fromkeys(_TIMES, high), "wrong": at_ms}
    within = [
        f"IF({sql} BETWEEN {low} AND {high}, least({sql}, {most[name]}), NULL) AS {name}"
        for name, sql in _TIMES.items()
    ]
    return verdicts.selectExpr("verdict", "lateness_ms", *within)


def _axis(times: DataFrame) -> Axis | None:
    """From the first record that was due or ended on: what was written earlier waited then."""
    seen = "due", "ended", "wrong"
    first, first_written, last = times.agg(
        f.min(f.least(*seen)), f.min("written"), f.max(f.greatest(*seen, "written"))
    ).collect()[0]
    first_ms = first_written if first is None else first
    if first_ms is None:
        return None
    step_ms = _step_ms(last - first_ms)
    start_ms = first_ms - first_ms % step_ms - step_ms
    return Axis(start_ms, step_ms, (last - start_ms) // step_ms + 2)


def _step_ms(span_ms: int) -> int:
    """So that there is one step before the first and one after the last: a single one is seen."""
    fitting = (step_ms for step_ms in STEPS_MS if span_ms <= step_ms * (MOST_STEPS - 4))
    return next(fitting, span_ms // (MOST_STEPS - 4) + 1)


def _by_step(times: DataFrame, axis: Axis, at_ms: str, *figures: Column) -> list[Row | None]:
    """The figures of each step; None where nothing was."""
    there = times.where(f.col(at_ms).isNotNull()).groupBy(axis.step_of(at_ms).alias("step"))
    found = {row.step: row for row in there.agg(*figures).collect()}
    return [found.get(step) for step in range(axis.steps)]


def _violations(times: DataFrame, axis: Axis) -> dict[str, dict[int, int]]:
    wrong = times.where("wrong IS NOT NULL").groupBy("verdict", axis.step_of("wrong").alias("step"))
    found: dict[str, dict[int, int]] = defaultdict(dict)
    for row in wrong.count().orderBy("verdict", "step").collect():
        found[row.verdict][row.step] = row["count"]
    return dict(found)
