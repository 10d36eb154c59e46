"""Charts over time are correct, with few steps, for any times."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.results.charts import NARROW, PLANS, WIDE, chart
from spark_jobs.results.result_tables import VerdictCounts
from spark_jobs.results.summary import Figures, lateness
from spark_jobs.results.timeline import MOST_STEPS, Timeline, timed, timeline
from tests.support.verdict_rows import delivered, undelivered, verdicts

NOW_MS = 1_795_300_000_000
WEEK_MS = 7 * 86_400_000
YEAR_MS = 365 * 86_400_000


def _seen(spark: SparkSession, *rows: dict[str, Any], at_ms: int = NOW_MS) -> Timeline:
    found = _timeline(spark, *rows, at_ms=at_ms)
    assert found is not None
    assert {len(found.due), len(found.delivered), len(found.pending), len(found.late)} == {
        found.axis.steps
    }
    return found


def _timeline(spark: SparkSession, *rows: dict[str, Any], at_ms: int = NOW_MS) -> Timeline | None:
    written = timed(verdicts(spark, rows), at_ms)
    if axis := VerdictCounts.of(written).axis:
        return timeline(written, axis, lateness(written, axis.step_of("due")).by_step)
    return None


def _at(found: Timeline, at_ms: int) -> int:
    return (at_ms - found.axis.first_ms) // found.axis.step_ms


def test_due_and_delivered_are_counted_where_they_were(spark: SparkSession) -> None:
    found = _seen(
        spark,
        delivered(1, NOW_MS, lateness_ms=WEEK_MS),
        delivered(2, NOW_MS + WEEK_MS),
        delivered(3, NOW_MS, lateness_ms=2**60),
    )
    assert found.axis.step_ms == 3_600_000
    week = _at(found, NOW_MS + WEEK_MS)
    assert [n for n in found.due if n] == [2, 1]
    assert (found.due[_at(found, NOW_MS)], found.due[week]) == (2, 1)
    assert (found.delivered[week], sum(found.delivered)) == (2, 2)


def test_a_record_waits_from_when_it_was_written_until_it_ends(spark: SparkSession) -> None:
    found = _seen(
        spark,
        delivered(1, NOW_MS, timestamp_ms=NOW_MS - 60_000),
        undelivered(2, "cancelled", timestamp_ms=NOW_MS, ended_ms=NOW_MS + 20_000),
        undelivered(3, "pending", timestamp_ms=NOW_MS + 10_000, due_ms=NOW_MS + YEAR_MS),
        undelivered(4, "pending", timestamp_ms=NOW_MS + 10_000, ended_ms=NOW_MS + 15_000),
        undelivered(5, "missing", timestamp_ms=NOW_MS, due_ms=NOW_MS, is_violation=True),
        undelivered(6, "unverifiable", timestamp_ms=NOW_MS),
    )
    expected = {-100: 1, 9_000: 1, 10_000: 3, 19_000: 3, 20_000: 2}
    assert {ms: found.pending[_at(found, NOW_MS + ms)] for ms in expected} == expected
    assert (found.pending[0], found.pending[-1]) == (1, 2)


def test_time_begins_with_what_was_due_first_however_long_it_had_waited(
    spark: SparkSession,
) -> None:
    found = _seen(
        spark,
        delivered(1, NOW_MS, timestamp_ms=NOW_MS - YEAR_MS),
        delivered(2, NOW_MS + 5_000, timestamp_ms=NOW_MS - YEAR_MS),
    )
    assert found.axis.step_ms == 100
    assert found.pending[0] == 2
    assert found.pending[-1] == 0


def test_lateness_is_told_by_when_the_record_was_due(spark: SparkSession) -> None:
    late = [delivered(n, NOW_MS + n % 100, lateness_ms=n) for n in range(101)]
    early = delivered(200, NOW_MS + 60_000, -7, verdict="early", is_violation=True)
    found = _seen(spark, *late, early)
    assert [one for one in found.late if one] == [Figures(101, 50, 99, 100), Figures(1, -7, -7, -7)]
    assert found.late[_at(found, NOW_MS)] == Figures(101, 50, 99, 100)


def test_violations_stand_where_their_records_were_due(spark: SparkSession) -> None:
    """Otherwise they are at the time of writing, or of the end if the record is unknown. None is
    after the audit."""

    def wrong(offset: int, verdict: str, **more: Any) -> dict[str, Any]:
        return undelivered(offset, verdict, is_violation=True, **more)

    found = _seen(
        spark,
        wrong(1, "missing", due_ms=NOW_MS - 60_000, timestamp_ms=NOW_MS - 70_000),
        wrong(2, "missing", due_ms=NOW_MS - 60_000, timestamp_ms=NOW_MS - 70_000),
        wrong(3, "altered", due_ms=5, timestamp_ms=NOW_MS - 20_000),
        wrong(4, "orphaned", due_ms=None, timestamp_ms=None, ended_ms=NOW_MS - 10_000),
        wrong(5, "early", due_ms=NOW_MS + YEAR_MS, timestamp_ms=NOW_MS - 5_000),
        wrong(6, "orphaned", due_ms=None, timestamp_ms=None),
        delivered(7, NOW_MS - 1_000),
    )
    steps = {ms: _at(found, NOW_MS + ms) for ms in (-60_000, -20_000, -10_000, 0)}
    assert found.violations == {
        "missing": {steps[-60_000]: 2},
        "altered": {steps[-20_000]: 1},
        "orphaned": {steps[-10_000]: 1},
        "early": {steps[0]: 1},
    }


@pytest.mark.parametrize("apart_ms", [0, 1, 300, 86_400_000, 40 * YEAR_MS, 2_000 * YEAR_MS])
def test_steps_are_few_however_far_the_times_are_apart(spark: SparkSession, apart_ms: int) -> None:
    found = _seen(spark, delivered(1, NOW_MS), delivered(2, NOW_MS + apart_ms))
    assert 3 <= found.axis.steps <= MOST_STEPS
    assert sum(found.delivered) == sum(found.due) == 2
    assert found.delivered[0] == found.delivered[-1] == 0
    for width in (WIDE, NARROW):
        assert f'<svg class="{width.name}"' in chart("over_time", found, width)
        assert "≤ 1 ms" in chart("lateness", found, width)
        assert chart("violations", found, width) == ""


def test_nothing_is_drawn_of_nothing(spark: SparkSession) -> None:
    assert _timeline(spark) is None
    timeless = undelivered(1, "orphaned", due_ms=None, timestamp_ms=None, is_violation=True)
    assert _timeline(spark, timeless) is None


def test_charts_take_their_colours_from_the_page_and_are_small(spark: SparkSession) -> None:
    busy = [delivered(n, NOW_MS + n * 1_000, lateness_ms=n * 7919 % 100_000) for n in range(235)]
    wrong = [delivered(n, NOW_MS + n, verdict="early", is_violation=True) for n in range(300, 400)]
    found = _seen(spark, *busy, *wrong)
    for name in PLANS:
        drawn = chart(name, found, WIDE)
        assert "var(--" in drawn
        assert not {"#2563a8", "#c0322b", "#5d6878"} & {*drawn.replace('"', " ").split()}
        assert "<metadata" not in drawn
        assert len(drawn) < 60_000
    assert ">early: 100<" in chart("violations", found, WIDE)
