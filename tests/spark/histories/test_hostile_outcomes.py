"""Untrustworthy outcomes are evidence of nothing, and end no audit."""

from __future__ import annotations

from pyspark.sql import SparkSession

from spark_jobs.histories.ends import outcomes
from spark_jobs.kafka.sources import RECORDS
from tests.support.frames import frame_of
from tests.support.hostile_json import HOSTILE

WHOLE = b'{"origin":"in/0/7","outcome":"cancelled","due":5,"id":null,"detail":""}'
DUES = [b"Infinity", b"NaN", b"9" * 5_000, b"[" * 50_000, b"9223372036854775808", b'"\\ud800"']


def test_hostile_outcomes_are_passed_over_and_the_others_count(spark: SparkSession) -> None:
    texts = [*HOSTILE.values(), *(WHOLE.replace(b":5", b":" + due) for due in DUES), WHOLE]
    rows = [
        {"topic": "o", "partition": 0, "offset": n, "timestamp_ms": 1, "value": text, "headers": []}
        for n, text in enumerate(texts)
    ]
    found = outcomes(frame_of(spark, rows, RECORDS), "in").collect()
    assert len(found) == len(texts)
    assert {row.at_offset for row in found if row.offset == 7} >= {len(texts) - 1}
    assert [row.due_ms for row in found if row.at_offset == len(texts) - 1] == [5]
