"""The number that Kafka's Java client makes of a key where it chooses the partition.

Kafka's own code gives it (org.apache.kafka.common.utils.Utils.murmur2, which comes with the
connector): called from the plan as Spark calls its own Java code, without a UDF. The same in
Spark's SQL functions took 40 us a record. StaticInvoke is no public interface of Spark: a test
holds what it gives, and the version of Spark is pinned.
"""

from __future__ import annotations

from typing import Any, Final

from pyspark import SparkContext
from pyspark.sql import Column
from pyspark.sql import functions as f

POSITIVE: Final = 0x7FFF_FFFF
UTILS: Final = "org.apache.kafka.common.utils.Utils"


def key_number(key: Column) -> Column:
    """Of a binary column: bigint from 0 to 2^31 - 1, null without a key.

    The partition is this modulo the number of partitions."""
    return _murmur2(key).bitwiseAND(f.lit(POSITIVE)).cast("bigint")


def _murmur2(key: Column) -> Column:
    """int. Arguments of StaticInvoke: class, type, method, arguments, their types, then: null for
    null, may be null, deterministic, no function of a catalogue."""
    context = SparkContext._active_spark_context  # noqa: SLF001
    assert context is not None, "there is no Spark session"
    java: Any = context._jvm  # noqa: SLF001
    loader = java.java.lang.Thread.currentThread().getContextClassLoader()
    utils = java.java.lang.Class.forName(UTILS, True, loader)
    expressions = java.org.apache.spark.sql.classic.ExpressionUtils
    argument = expressions.expression(key._jc)  # noqa: SLF001
    integer = java.org.apache.spark.sql.types.DataTypes.IntegerType
    called = java.org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke(
        utils,
        integer,
        "murmur2",
        java.PythonUtils.toSeq([argument]),
        java.PythonUtils.toSeq([]),
        True,
        True,
        True,
        java.scala.Option.empty(),
    )
    return Column(expressions.column(called))
