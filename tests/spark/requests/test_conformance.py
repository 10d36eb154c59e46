"""The audit's reader reads each record of the conformance table as the guide says."""

from __future__ import annotations

from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

from spark_jobs.kafka.sources import RECORDS
from spark_jobs.records.hashes import HopKeys
from spark_jobs.requests.parsing import parsed
from spark_jobs.requests.policies import InForce, policies
from tests.support.conformance import Row, partition_of, policies_of_table, rows, signer
from tests.support.frames import frame_of, headers_told
from tests.support.proxy_reading import NOTHING

pytestmark = pytest.mark.usefixtures("compiled")

SIGNED_BY: Final = signer()
HOP_KEYS: Final = HopKeys(SIGNED_BY.topic_id, {SIGNED_BY.key.digest: SIGNED_BY.key.secret})


def _record(row: Row) -> dict[str, Any]:
    return {
        "topic": "ingress",
        "partition": row.partition,
        "offset": row.offset,
        "timestamp_ms": row.timestamp_ms,
        "key": row.key,
        "value": row.value,
        "headers": headers_told(row.headers_in_java),
    }


def _read(spark: SparkSession) -> dict[int, dict[str, Any]]:
    judges = policies_of_table()
    texts = {policy.digest: policy.to_json() for policy in judges.values()}
    in_force = [InForce(partition_of(name), 0, policy.digest) for name, policy in judges.items()]
    records = frame_of(spark, map(_record, rows()), RECORDS)
    answers = parsed(records, policies(spark, texts, in_force, HOP_KEYS))
    found = answers.select("offset", *NOTHING).collect()
    return {one.offset: {name: _plain(one[name]) for name in NOTHING} for one in found}


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray) else value


def test_the_audit_reads_every_record_as_the_guide_says(spark: SparkSession) -> None:
    read = _read(spark)
    assert read.keys() == {row.offset for row in rows()}
    wrong = {row.where: row.difference(read[row.offset]) for row in rows()}
    wrong = {where: difference for where, difference in wrong.items() if difference}
    known = {row.where for row in rows() if "audit" in row.fails}
    new = [difference for where, difference in wrong.items() if where not in known]
    assert not new, "\n".join([f"{len(new)} rows are read otherwise:", *new])
    assert known <= wrong.keys(), f"read right by now: {sorted(known - wrong.keys())}"
