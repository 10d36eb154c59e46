"""The order that is promised: records of one ingress partition with the same due are delivered in
the order in which they were written (docs/guide.md#what-arrives).

In a partition of a target; records that went on as others, and half messages, have no place in it.
"""

from typing import Final

from pyspark.sql import DataFrame

from spark_jobs.verdicts.rules.rule import names, sentence
from spark_jobs.verdicts.verdict_names import ARRIVED

HAS_PLACE: Final = f"verdict IN {names(ARRIVED)} AND kind = 'record'"
_BEFORE: Final = """
OVER (PARTITION BY partition, due_ms, at_topic, at_partition ORDER BY offset
  ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
"""
_WHY: Final = sentence(
    "it was delivered before offset {before.offset}, which was written earlier with the same due"
)


def out_of_order(verdicts: DataFrame) -> DataFrame:
    """Of these VERDICTS, none of them of a hop, those that overtook an earlier record: partition,
    offset, `why_wrong`."""
    placed = verdicts.filter(HAS_PLACE).selectExpr(
        "partition",
        "offset",
        f"max(named_struct('at_offset', at_offset, 'offset', offset)) {_BEFORE} AS before",
        "at_offset",
    )
    wrong = placed.filter("before.at_offset > at_offset")
    return wrong.selectExpr("partition", "offset", f"{_WHY} AS why_wrong")
