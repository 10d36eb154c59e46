"""A wrong `missed` is found by the audit that sees the record's end, and kept only until then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.audit_scope import AuditScope
from spark_jobs.histories.ends import ENDS, REQUESTS, all_of, record_histories
from spark_jobs.histories.open_records import ends_of, requests_of
from spark_jobs.histories.reader import PARTITION_STATE
from spark_jobs.runtime.frames import location, materialising
from spark_jobs.verdicts.evaluation import evaluate, in_scope
from spark_jobs.verdicts.generations import open_rows
from tests.spark.verdicts.moved_records import LATER, move
from tests.spark.verdicts.recalled_records import recall
from tests.spark.verdicts.topics_told import NEXT_OFFSET, OUTCOMES_GONE, SEEN, Topics
from tests.support.frames import frame_of

pytestmark = pytest.mark.core

AFTER_MS = 190_000
UNSEEN = replace(SEEN, unseen=OUTCOMES_GONE)
"""Outcomes are deleted, so a record without one may not be pending."""


class Audited(NamedTuple):
    """Verdicts by offset in `verdicts`, and the OPEN rows for the next audit in `kept`."""

    verdicts: dict[int, str]
    kept: DataFrame
    offsets: list[int]


def audited(
    spark: SparkSession, folder: Path, topics: Topics, earlier: Audited | None, seen: AuditScope
) -> Audited:
    state = dict(zip(PARTITION_STATE, topics.state, strict=True))
    if earlier:
        state |= {"closed_to": NEXT_OFFSET, "audited_from": NEXT_OFFSET, "watermark_ms": AFTER_MS}
    requests = frame_of(spark, topics.asked, REQUESTS)
    ends = frame_of(spark, topics.ends, ENDS)
    if earlier:
        requests = requests.unionByName(requests_of(earlier.kept))
        ends = all_of(ends, ends_of(earlier.kept))
    with materialising(spark, location(folder)) as materialise:
        partitions = frame_of(spark, [state], PARTITION_STATE)
        histories = record_histories(requests, all_of(ends))
        found = evaluate(histories, in_scope(partitions, seen), materialise)
        rows = open_rows(found.carried).localCheckpoint()
        verdicts = {row.offset: row.verdict for row in found.verdicts.collect()}
    return Audited(verdicts, rows, sorted(row.offset for row in rows.collect()))


@pytest.mark.parametrize("by", [recall, move], ids=["recall", "move"])
def test_what_missed_a_record_that_is_delivered_after_its_audit_is_contradicted_once(
    spark: SparkSession, tmp_path: Path, by: Callable[..., int]
) -> None:
    before, after = Topics(0), Topics(0)
    waiting, other = before.record("pending", **LATER), before.record("pending", **LATER)
    wrong = by(before, "missed", waiting)
    before.outcome(wrong, "missed", at_ms=45_000)
    first = audited(spark, tmp_path / "first", before, None, UNSEEN)
    assert first.verdicts[wrong] == "missed"
    assert first.offsets == [waiting, other, wrong]
    for offset in (waiting, other):
        after.delivered(offset, due_ms=150_000, at_ms=150_004)
    second = audited(spark, tmp_path / "second", after, first, UNSEEN)
    assert second.verdicts[wrong] == "contradicted"
    assert second.verdicts[other] == "delivered"
    assert second.offsets == []


def test_recall_that_missed_what_had_ended_is_kept_no_longer(
    spark: SparkSession, tmp_path: Path
) -> None:
    topics = Topics(0)
    topics.delivered(ended := topics.record("delivered"))
    topics.outcome(recall(topics, "missed", ended), "missed")
    assert audited(spark, tmp_path, topics, None, UNSEEN).offsets == []
