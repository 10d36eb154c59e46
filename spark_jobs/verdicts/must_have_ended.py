"""Which records must have ended, by the committed offsets alone (DESIGN 5.1)."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as f

from spark_jobs.verdicts.rules import Circumstances, asked, looked_up


def must_have_ended(seen: Circumstances) -> Column:
    """Whether the committed position says that the record has ended by the audited instant.

    x has ended iff x < O and (d, x) <= (T, C). What a later record with its id took back, and what
    was taken back before it came, has ended as that was ingested, or it was. Controls and what is
    refused end as they are ingested.
    """
    offset = f.col("offset")
    is_record, is_half = asked("kind") == "record", asked("kind") == "prepare"
    taken_back = _is_ingested(f.col("next_opener.offset"))
    is_late = f.col("late_by").isNotNull()
    undone = f.col("decision.kind").isin("rollback", "expire")
    must = (
        f.when(asked().isNull(), False)
        .when(is_record, _is_ingested(offset) & (_has_fired(offset, seen) | is_late | taken_back))
        .when(is_half & taken_back, True)
        .when(is_half & undone, _is_ingested(f.col("decision.offset")))
        .when(is_half & f.col("decision").isNotNull(), _fired_by_commit(seen))
        .when(is_half, _is_ingested(offset) & _is_overdue_half(seen))
        .otherwise(_is_ingested(offset))
    )
    return f.coalesce(must, f.lit(False))


def is_lost_to_retention(seen: Circumstances) -> Column:
    """Whether the record's end may have been deleted from where it was."""
    fired_ms = f.coalesce(asked("fires_ms"), asked("timestamp_ms"))
    target_ms = looked_up(seen.gone_before_ms, asked("target"), "bigint")
    outcomes_ms = f.lit(seen.gone_before_ms.get(seen.outcomes)).cast("bigint")
    return f.coalesce(f.greatest(target_ms, outcomes_ms) >= fired_ms, f.lit(False))


def _is_ingested(offset: Column) -> Column:
    return f.coalesce(offset < f.col("next_offset"), f.lit(False))


def _has_fired(entry_offset: Column, seen: Circumstances) -> Column:
    fires_ms, watermark_ms = asked("fires_ms"), f.col("watermark_ms")
    is_passed = (fires_ms < watermark_ms) | (
        (fires_ms == watermark_ms) & (entry_offset <= f.col("cursor"))
    )
    return is_passed & (fires_ms <= seen.at_ms)


def _fired_by_commit(seen: Circumstances) -> Column:
    """A half message that was committed fires by its due, under the commit's offset."""
    committed = f.col("decision.offset")
    return _is_ingested(committed) & _has_fired(committed, seen)


def _is_overdue_half(seen: Circumstances) -> Column:
    """Undecided beyond all checks: then the proxy has asked to end it."""
    expires_ms = asked("expires_ms")
    return (expires_ms <= f.col("watermark_ms")) & (expires_ms <= seen.at_ms)
