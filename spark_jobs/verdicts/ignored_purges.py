"""Records that fired though a purge had ended them (docs/exactly-once.md#purges)."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from spark_jobs.verdicts.purges import met
from spark_jobs.verdicts.rules.order_rules import delivered_after
from spark_jobs.verdicts.rules.rule import sentence

_FIRED_AFTER: Final = sentence(
    "it {IF(delivered_ms IS NULL, 'became a dead letter', 'was delivered')}"
    " {ended_ms - purge.applied_ms} ms after the purge at offset {purge.offset}, which means it,"
    " had been applied"
)


def fired_all_the_same(fired: DataFrame, purges: DataFrame) -> DataFrame:
    """Those of the verdicts `fired`, with `waits_from`, that are of records which fired after a
    purge: partition, offset and `why_wrong`."""
    means = met("target", "due_ms", "waits_from")
    late = delivered_after("ended_ms", "due_ms", "one.applied_ms")
    purge = f"get(filter({means}, one -> {late}), 0) AS purge"
    found = fired.join(f.broadcast(purges), "partition").selectExpr(
        "partition", "offset", "delivered_ms", "ended_ms", purge
    )
    wrong = found.filter("purge IS NOT NULL")
    return wrong.selectExpr("partition", "offset", f"{_FIRED_AFTER} AS why_wrong")
