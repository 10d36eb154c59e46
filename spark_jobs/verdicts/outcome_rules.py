"""Rules for a record that has one outcome and was not delivered."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as f

from spark_jobs.verdicts.hops import GOES_ON
from spark_jobs.verdicts.id_generations import PARTLY
from spark_jobs.verdicts.rules import Circumstances, Rule, asked, said, text

DROPPED: Final = "(release.overdue)"
"""In the detail of what a setting expires: that leaves no dead letter."""
JUDGED_WHEN_READ: Final = (
    "header-unreadable",
    "header-unknown",
    "header-unsupported",
    "target-missing",
    "target-illegal",
    "target-refused",
    "time-unreadable",
    "level-unknown",
    "delay-too-long",
    "id-bad",
    "retry-bad",
    "transaction-bad",
    "hop-bad",
)
"""Codes that depend on the record alone: what is not to be refused cannot have them."""


def outcome_rules(seen: Circumstances) -> list[Rule]:
    """In order; the last holds for every record that has an outcome."""
    end, must = said("outcome", "end"), f.col("must_have_ended")
    successors, changed_in = f.col("successors"), f.col("changed_in")
    goes_on = end.isin(*GOES_ON)
    is_lost = (successors == 0) & (f.col("read_to") >= f.col("settled_end"))
    return [
        Rule("contradicted", ~_is_possible(), text("its outcome is {}: {}", end, _why_not())),
        Rule(
            "unverifiable",
            _lacks_letter() & _is_letter_gone(seen),
            text("{}; the dead letters of that time have been deleted", end),
        ),
        Rule("contradicted", must & _lacks_letter(), text("{}, without a dead letter", end)),
        Rule("pending", _lacks_letter(), f.lit("its dead letter was not there yet")),
        Rule("duplicated", f.col("letters") > 1, text("it has {} dead letters", "letters")),
        Rule("contradicted", _wrong_code() != "", _wrong_code()),
        Rule("altered", _is_letter_altered(), f.lit("its dead letter has other content")),
        Rule("missing", goes_on & is_lost, text("{}, and nothing goes on from it", end)),
        Rule("pending", goes_on & (successors == 0), f.lit("its successor was not read yet")),
        Rule(
            "duplicated",
            goes_on & (successors > 1),
            text("{}, and {} records go on from it", end, successors),
        ),
        Rule(
            "altered",
            goes_on & (changed_in != ""),
            text("it went on at offset {} with other {}", f.col("successor"), changed_in),
        ),
        Rule(f.replace(end, f.lit("-"), f.lit("_")), f.lit(True), said("outcome", "detail")),
    ]


def _is_possible() -> Column:
    """Whether the log allows this outcome for this record."""
    end, kind = said("outcome", "end"), asked("kind")
    is_control = kind.isin("cancel", "commit", "rollback", "expire")
    possible = (
        f.when(is_control, _control_says(end))
        .when(end == "dead-lettered", f.lit(True))
        .when(kind == "refused", f.lit(False))
        .when(end.isin("cancelled", "replaced"), _is_taken_back(end))
        .when(f.col("late_by").isNotNull(), f.lit(False))
        .when(end == "rolled-back", f.col("decision.kind") == "rollback")
        .when(end == "expired", _may_expire())
        .when(end == "rolled", _may_be_fired() & (asked("fires_ms") < asked("wanted_ms")))
        .when(end == "requeued", _may_be_fired())
        .otherwise(f.lit(False))
    )
    return f.coalesce(possible, f.lit(False))


def _control_says(end: Column) -> Column:
    """What it names tells what it must say, once all that it did is committed for sure."""
    expected = f.when(f.col("offset") < f.col("next_offset"), f.col("expected"))
    is_either = expected.isNull() | (expected == PARTLY)
    return end.isin("applied", "missed", "dead-lettered") & (
        is_either | (end == expected) | (end == "dead-lettered")
    )


def _is_taken_back(end: Column) -> Column:
    """By the last to open a chapter while it was rewritten, or else by the next one."""
    by = f.coalesce(f.col("late_by"), f.col("next_opener"))
    by_record = (by["kind"] != "cancel") & (said("outcome", "next_offset") == by["offset"])
    return f.when(end == "cancelled", by["kind"] == "cancel").otherwise(by_record)


def _may_be_fired() -> Column:
    return (asked("kind") == "record") | (f.col("decision.kind") == "commit")


def _may_expire() -> Column:
    is_dropped = said("outcome", "detail").contains(DROPPED)
    return f.when(is_dropped, _may_be_fired()).otherwise(f.col("decision.kind") == "expire")


def _why_not() -> Column:
    opener = f.coalesce(f.col("late_by"), f.col("next_opener"))
    by = text("what next has its id is a {} at offset {}", opener["kind"], opener["offset"])
    decided = text("what decided it is {}", f.col("decision.kind"))
    should = text("it should say {}", f.col("expected"))
    return (
        f.when(f.col("expected").isNotNull(), should)
        .when(asked("kind") == "refused", text("it is to be refused ({})", asked("code")))
        .when(asked("kind") == "prepare", f.concat(decided, f.lit(", "), by))
        .otherwise(by)
    )


def _lacks_letter() -> Column:
    end = said("outcome", "end")
    is_dropped = f.coalesce(said("outcome", "detail").contains(DROPPED), f.lit(False))
    is_buried = (end == "dead-lettered") | ((end == "expired") & ~is_dropped)
    return is_buried & (f.col("letters") == 0)


def _is_letter_gone(seen: Circumstances) -> Column:
    """Whether its dead letter, written with the outcome, may have been deleted since."""
    gone_ms = f.lit(seen.gone_before_ms.get(seen.dead_letters)).cast("bigint")
    return f.coalesce(gone_ms >= said("outcome", "at_ms"), f.lit(False))


def _wrong_code() -> Column:
    """A sentence where a dead letter's reason is not the record's; empty if it is."""
    code, is_refused = said("letter", "code"), asked("kind") == "refused"
    is_other = is_refused & (code != asked("code"))
    is_sound = ~is_refused & code.isin(*JUDGED_WHEN_READ)
    return f.coalesce(
        f.when(is_other, text("dead-lettered for {}, it is {}", code, asked("code"))),
        f.when(is_sound, text("dead-lettered for {}, nothing is wrong with it", code)),
        f.lit(""),
    )


def _is_letter_altered() -> Column:
    """The value may lack, if the dead-letter topic could not take it."""
    value = said("letter", "value_hash")
    is_value_kept = value.isNull() | value.eqNullSafe(asked("value_hash"))
    is_gone = said("letter", "code") == "body-gone"
    is_kept = said("letter", "letter_hash").eqNullSafe(asked("letter_hash")) & is_value_kept
    return f.col("letter").isNotNull() & ~(is_kept | f.coalesce(is_gone, f.lit(False)))
