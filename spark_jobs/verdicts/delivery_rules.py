"""Rules for a record that was delivered once."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as f

from spark_jobs.verdicts.rules import Circumstances, Rule, asked, looked_up, said, text

STAMPS: Final = "timer-origin,timer-due"
STAMPS_OF_A_LONGER_WAY: Final = f"{STAMPS},timer-first-origin"


def delivered_rules(seen: Circumstances) -> list[Rule]:
    """In order; the last holds for every record that was delivered."""
    is_delivered = f.col("deliveries") == 1
    changed = _changed(seen)
    too_soon_ms = asked("wanted_ms") - said("delivery", "at_ms")
    return [
        Rule(
            "contradicted",
            is_delivered & ~_may_be_delivered(),
            text("it was delivered: {}", _why_not()),
        ),
        Rule(
            "contradicted",
            is_delivered & (f.col("letters") > 0),
            f.lit("it was delivered, and there is a dead letter of it"),
        ),
        Rule("altered", is_delivered & (changed != ""), text("it arrived with other {}", changed)),
        Rule(
            "early",
            is_delivered & (too_soon_ms > 0),
            text("it arrived {} ms before its due", too_soon_ms),
        ),
        Rule("delivered", is_delivered, f.lit(None)),
    ]


def _may_be_delivered() -> Column:
    is_committed = (asked("kind") == "prepare") & (f.col("decision.kind") == "commit")
    is_in_time = (asked("kind") == "record") & f.col("late_by").isNull()
    return f.coalesce(is_committed, f.lit(False)) | is_in_time


def _why_not() -> Column:
    late_by = text(
        "a record or cancel with its id, at offset {}, came while it was rewritten",
        f.col("late_by.offset"),
    )
    return (
        f.when(f.col("late_by").isNotNull(), late_by)
        .when(asked("kind") == "refused", text("it is to be refused ({})", asked("code")))
        .when(asked("kind") == "prepare", f.lit("nobody has committed this half message"))
        .otherwise(f.lit("it is a control record"))
    )


def _changed(seen: Circumstances) -> Column:
    """What is not as the record asked, names apart by commas; empty if all is."""
    has_first = asked("first_origin").isNotNull() | asked("hop_from").isNotNull()
    stamps = f.when(has_first, STAMPS_OF_A_LONGER_WAY).otherwise(STAMPS)
    wanted = {
        "topic": (asked("target"), said("delivery", "topic")),
        "partition": (_partition(seen), said("delivery", "at_partition")),
        "key": (asked("key_hash"), said("delivery", "key_hash")),
        "value": (asked("value_hash"), said("delivery", "value_hash")),
        "headers": (asked("headers_hash"), said("delivery", "headers_hash")),
        "timer-due": (asked("due_ms"), said("delivery", "due_ms")),
        "stamps": (stamps, said("delivery", "stamps")),
        "timer-first-origin": (asked("first_origin"), said("delivery", "first_origin")),
    }
    parts = [
        f.when(~expected.eqNullSafe(found), f.lit(name))
        for name, (expected, found) in wanted.items()
    ]
    return f.concat_ws(", ", *parts)


def _partition(seen: Circumstances) -> Column:
    """Where the record belongs; where it is, when any partition will do."""
    count = looked_up(seen.partition_counts, asked("target"), "bigint")
    by_key = f.when(asked("key_number").isNotNull(), asked("key_number") % count)
    return f.coalesce(
        asked("target_partition").cast("bigint"),
        by_key,
        said("delivery", "at_partition").cast("bigint"),
    ).cast("int")
