"""Deliveries of records that a purge had ended (docs/exactly-once.md#purges)."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from spark_jobs.verdicts.purges import met
from spark_jobs.verdicts.rules.order_rules import delivered_after
from spark_jobs.verdicts.rules.rule import sentence

_DELIVERED_AFTER: Final = sentence(
    "it was delivered {delivered_ms - purge.applied_ms} ms after the purge at offset"
    " {purge.offset}, which means it, had been applied"
)


def delivered_all_the_same(arrived: DataFrame, purges: DataFrame) -> DataFrame:
    """Those of the verdicts `arrived`, with `waits_from`, that are of records which were delivered
    after a purge: partition, offset and `why_wrong`."""
    means = met("target", "due_ms", "waits_from")
    late = delivered_after("delivered_ms", "due_ms", "one.applied_ms")
    found = arrived.join(f.broadcast(purges), "partition").selectExpr(
        "partition", "offset", "delivered_ms", f"get(filter({means}, one -> {late}), 0) AS purge"
    )
    wrong = found.filter("purge IS NOT NULL")
    return wrong.selectExpr("partition", "offset", f"{_DELIVERED_AFTER} AS why_wrong")
