"""Events over time, in at most a few hundred steps, for the charts of the report."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from spark_jobs.results.summary import Figures
from spark_jobs.runtime.frames import quoted
from spark_jobs.verdicts.verdict_names import NOT_DONE

MOST_STEPS: Final = 240
CALENDAR_MS: Final = (0, 250_000_000_000_000)
"""First and last time (epoch ms) that is shown as a date: until the year 9892."""
STEPS_MS: Final = (
    *(100, 250, 500, 1_000, 5_000, 10_000, 30_000, 60_000, 300_000, 600_000, 1_800_000),
    *(3_600_000, 21_600_000, 86_400_000, 604_800_000, 2_592_000_000),
)
_IS_DONE: Final = f"verdict NOT IN {quoted(NOT_DONE)}"
_DUE_FROM: Final = "delivered_ms - lateness_ms"
"""The time at which a delivered record was due, or was written if that was later."""
TIMES: Final = {
    "due": f"IF({_IS_DONE}, {_DUE_FROM}, NULL)",
    "written": f"IF(ended_ms IS NOT NULL OR NOT {_IS_DONE}, timestamp_ms, NULL)",
    "ended": f"IF({_IS_DONE} AND timestamp_ms IS NOT NULL, ended_ms, NULL)",
    "wrong": "IF(is_violation, coalesce(greatest(due_ms, timestamp_ms), ended_ms), NULL)",
}
"""SQL of the times of a record, epoch ms.
`due`: the due of a delivered record. A record is pending from `written` to `ended`. A pending
record has no `ended`. If its end cannot be seen, a record has no `written` and no `ended`.
`wrong`: when a violation was due, or when its end was written.
"""
_COUNTED: Final = ("+", "-", "-due")
"""Names of events: a record is written, ends without delivery, or is delivered. Violations are
counted under their verdicts.
"""
_EVENTS: Final = ("written, '+'", "ended, IF(due IS NULL, '-', '-due')", "wrong, verdict")


class Axis(NamedTuple):
    """Steps of equal length from `first_ms` on, in epoch ms."""

    first_ms: int
    step_ms: int
    steps: int

    @property
    def end_ms(self) -> int:
        return self.first_ms + self.steps * self.step_ms

    def step_of(self, at_ms: str) -> Column:
        """Return `step`, the number of a time's step. Earlier times belong to the first step."""
        step = f.floor((f.col(at_ms) - f.lit(self.first_ms)) / f.lit(self.step_ms))
        return f.when(step < 0, f.lit(0)).otherwise(step.cast("int")).alias("step")


class Timeline(NamedTuple):
    """Records due, delivered, and pending by step; lateness; and violations by verdict."""

    axis: Axis
    due: Sequence[int]
    delivered: Sequence[int]
    pending: Sequence[int]
    late: Sequence[Figures | None]
    violations: Mapping[str, Mapping[int, int]]


def timed(verdicts: DataFrame, at_ms: int) -> DataFrame:
    """Return VERDICTS of an audit at `at_ms`, with TIMES. A later violation is moved to `at_ms`."""
    low, high = CALENDAR_MS
    most = {**dict.fromkeys(TIMES, high), "wrong": at_ms}
    within = [
        f"IF({sql} BETWEEN {low} AND {high}, least({sql}, {most[name]}), NULL) AS {name}"
        for name, sql in TIMES.items()
    ]
    return verdicts.selectExpr("*", *within)


def axis_of(start_ms: int | None, last_ms: int | None) -> Axis | None:
    """Return the axis from the first due or end on. Records that were written
    before it count as pending at its start."""
    if start_ms is None or last_ms is None:
        return None
    span_ms = last_ms - start_ms
    fitting = (step_ms for step_ms in STEPS_MS if span_ms <= step_ms * (MOST_STEPS - 4))
    step_ms = next(fitting, span_ms // (MOST_STEPS - 4) + 1)
    start_ms -= start_ms % step_ms + step_ms
    return Axis(start_ms, step_ms, (last_ms - start_ms) // step_ms + 2)


def timeline(verdicts: DataFrame, axis: Axis, late: Mapping[int, Figures]) -> Timeline:
    """Count VERDICTS with TIMES, by one query. `late`: deliveries by the step of their due."""
    happened = verdicts.selectExpr(f"stack({len(_EVENTS)}, {', '.join(_EVENTS)}) AS (at_ms, what)")
    grouped = happened.where("at_ms IS NOT NULL").groupBy("what", axis.step_of("at_ms"))
    counts: dict[str, Counter[int]] = {name: Counter() for name in _COUNTED}
    for what, step, count in grouped.count().orderBy("what", "step").collect():
        counts.setdefault(what, Counter())[step] = count
    written, ended, delivered = (counts.pop(name) for name in _COUNTED)
    steps = range(axis.steps)
    return Timeline(
        axis,
        [late[step].records if step in late else 0 for step in steps],
        [delivered[step] for step in steps],
        [*accumulate(written[step] - ended[step] - delivered[step] for step in steps)],
        [late.get(step) for step in steps],
        {verdict: dict(by_step) for verdict, by_step in counts.items()},
    )
