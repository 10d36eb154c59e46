"""What the log alone says of records that share an id (DESIGN 2, 6, 7).

Within a partition, records and half messages of producers, and cancels, *open* a new chapter of
their id: each may end what the chapter before it began. Commits and rollbacks decide the half
message that opened their chapter. What the proxy rewrote goes on in it; if a new chapter was opened
while it was being rewritten, it ends as it arrives (it is *late*).
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

PARTLY: Final = "either"
"""A cancel that met a record in the middle of a publish retry may say either."""
OPENER: Final = "struct<offset:bigint,kind:string>"
CHAPTERS: Final = {
    "prev_opener": OPENER,
    "late_by": OPENER,
    "next_opener": OPENER,
    "decision": OPENER,
    "expected": "string",
}
"""prev_opener: what opened the chapter. late_by: the last to open a chapter while the record was
being rewritten. next_opener: the first after it. decision: what decided the half message.
expected: what a control record has to say: applied, missed, or either."""


def with_chapters(facts: DataFrame) -> DataFrame:
    """`facts` with CHAPTERS; records without an id have none."""
    found = _decided(_cancelled(_opened(facts.withColumn("alone", _alone()))))
    return found.select(*facts.columns, *CHAPTERS)


def without_chapters(facts: DataFrame) -> DataFrame:
    """The same columns, for records of which it is known that they have no id."""
    nothing = [f.lit(None).cast(kind).alias(name) for name, kind in CHAPTERS.items()]
    return facts.select("*", *nothing)


def _opened(facts: DataFrame) -> DataFrame:
    """With `prev_opener`, `next_opener`, `late_by`, and whether it is a `member` of a life."""
    begins = _kind("record", "prepare") & f.col("asked.hop_from").isNull()
    opens = f.col("alone").isNull() & (begins | _kind("cancel"))
    opener = f.when(opens, f.struct("offset", "asked.kind"))
    before, after = _nearest_before(opener), _nearest_after(opener)
    opened = facts.withColumn("prev_opener", before).withColumn("next_opener", after)
    is_late = _kind("record") & (f.col("prev_opener.offset") > f.col("asked.hop_from"))
    late = opened.withColumn("late_by", f.when(is_late, f.col("prev_opener")))
    return late.withColumn("member", _kind("record", "prepare") & f.col("late_by").isNull())


def _cancelled(opened: DataFrame) -> DataFrame:
    """With what a cancel has to say, by how the record that it names ended."""
    ended = f.coalesce(f.col("outcome.end"), f.lit("delivered"))
    named = _nearest_before(f.when(f.col("member"), f.struct("offset", ended.alias("end"))))
    found = opened.withColumn("named", named)
    is_there = _is_open() & (f.col("named.offset") >= f.col("prev_opener.offset"))
    end = f.col("named.end")
    says = (
        f.when(~f.coalesce(is_there, f.lit(False)), "missed")
        .when(end.isin("cancelled", "rolled"), "applied")
        .when(end == "requeued", PARTLY)
        .otherwise("missed")
    )
    return found.withColumn("cancel_says", f.when(_kind("cancel"), says))


def _decided(opened: DataFrame) -> DataFrame:
    """With what decisions have to say, and what decided each half message."""
    by_request = _kind("commit", "rollback") | (
        _kind("expire") & (f.col("asked.hop_from") == f.col("prev_opener.offset"))
    )
    is_valid = by_request & (f.col("prev_opener.kind") == "prepare")
    this = f.struct("offset", "asked.kind")
    before = _nearest_before(f.when(is_valid, this))
    is_first = f.coalesce(before["offset"] < f.col("prev_opener.offset"), f.lit(True))
    valid = opened.withColumn("decides", f.when(is_valid & is_first, this))
    found = valid.withColumn("decided_by", _nearest_after(f.col("decides")))
    is_own = f.col("decided_by.offset") < f.coalesce(f.col("next_opener.offset"), f.lit(2**62))
    decision = f.when(_kind("prepare") & is_own, f.col("decided_by"))
    says = f.when(f.col("decides").isNotNull(), "applied").otherwise("missed")
    is_decision = _kind("commit", "rollback", "expire")
    return found.withColumn("decision", decision).withColumn(
        "expected", f.coalesce(f.col("cancel_says"), f.when(is_decision, says))
    )


def _is_open() -> Column:
    """Whether the chapter was opened by a record, so that it names one."""
    return f.col("prev_opener.kind") != "cancel"


def _alone() -> Column:
    """What keeps records without an id apart from each other."""
    return f.when(f.col("asked.ident").isNull(), f.col("offset"))


def _kind(*kinds: str) -> Column:
    return f.col("asked.kind").isin(*kinds)


def _nearest_before(what: Column) -> Column:
    return _last(what, f.col("offset").asc())


def _nearest_after(what: Column) -> Column:
    return _last(what, f.col("offset").desc())


def _last(what: Column, order: Column) -> Column:
    of_id = Window.partitionBy("partition", "asked.ident", "alone").orderBy(order)
    passed = of_id.rowsBetween(Window.unboundedPreceding, -1)
    return f.last(what, ignorenulls=True).over(passed)
