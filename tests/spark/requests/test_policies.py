"""The audit's choice of the policy for each record."""

from __future__ import annotations

import json
from dataclasses import asdict
from hashlib import sha256

import pytest
from pyspark.sql import SparkSession

from proxy.protocol.policy import Policy
from spark_jobs.requests.parsing import parsed
from spark_jobs.requests.policies import DEFAULTS, LAST_OFFSET, InForce, policies
from spark_jobs.runtime.errors import NotOurs
from tests.spark.requests.test_parsing_agrees import spark_records
from tests.support.any_requests import NOW_MS, AnyRecord

FIRST, SECOND = Policy(), Policy(deny=("orders",), aliases=("rabbitmq",))
TEXTS = {policy.digest: policy.to_json() for policy in (FIRST, SECOND)}
IN_FORCE = [InForce(0, 5, FIRST.digest), InForce(0, 9, SECOND.digest), InForce(1, 0, FIRST.digest)]


def _named(fields: object) -> tuple[str, str]:
    text = json.dumps(fields)
    return sha256(text.encode()).hexdigest()[:16], text


def test_each_range_ends_where_the_next_of_its_partition_begins(spark: SparkSession) -> None:
    rows = policies(spark, TEXTS, IN_FORCE).ranges.collect()
    first, second = rows[0].policy, rows[1].policy
    assert {first, second} == {0, 1}
    assert [tuple(row) for row in rows] == [
        (0, 5, 9, first),
        (0, 9, LAST_OFFSET, second),
        (1, 0, LAST_OFFSET, first),
    ]


def test_a_record_is_judged_by_the_policy_at_its_offset_and_by_none_where_none_is_known(
    spark: SparkSession,
) -> None:
    headers: list[tuple[str, bytes | None]] = [("timer-topic", b"orders"), ("x-delay", b"soon")]
    places = [(0, 4), (0, 5), (0, 8), (0, 9), (2, 0)]
    records = [AnyRecord(*place, NOW_MS, b"k", b"v", headers) for place in places]
    judged = parsed(spark_records(spark, records), policies(spark, TEXTS, IN_FORCE))
    found = {(row.partition, row.offset): (row.kind, row.code) for row in judged.collect()}
    told = [(None, None), ("record", None), ("record", None), ("refused", "time-unreadable")]
    assert [found[place] for place in places] == [*told, (None, None)]


def test_a_record_without_a_key_has_no_hash_of_a_key_that_could_prove_a_recall(
    spark: SparkSession,
) -> None:
    headers: list[tuple[str, bytes | None]] = [("timer-topic", b"shop")]
    keys = (None, b"", b"k")
    records = [AnyRecord(1, n, NOW_MS, key, b"v", headers) for n, key in enumerate(keys)]
    judged = parsed(spark_records(spark, records), policies(spark, TEXTS, IN_FORCE))
    hashes = {row.offset: row.ingress_key_hash for row in judged.collect()}
    assert [hashes[n] is None for n in range(3)] == [True, True, False]


def test_a_letter_refused_when_read_shows_the_record_as_it_came_and_one_refused_later_what_was_read(
    spark: SparkSession,
) -> None:
    """Only a letter refused later has headers translated from another scheduler's."""
    accepted, refused = ("timer-topic", b"shop"), ("timer-topic", b"orders")
    foreign, read = ("x-delay", b"5"), ("timer-delay", b"5")
    told = [[accepted, foreign], [accepted, foreign, read]]
    told += [[refused, *others] for _, *others in told]
    records = [AnyRecord(0, 9 + n, NOW_MS, b"k", b"v", [*one]) for n, one in enumerate(told)]
    judged = parsed(spark_records(spark, records), policies(spark, TEXTS, IN_FORCE))
    letters = {row.offset: row.letter_hash for row in judged.collect()}
    assert letters[9] == letters[10]
    assert letters[11] != letters[12]


def test_a_policy_that_cannot_be_read_is_an_error_that_says_which(spark: SparkSession) -> None:
    fields = asdict(FIRST)
    lacking = {name: value for name, value in fields.items() if name != "allow"}
    wrong: list[object] = [lacking, {**fields, "new": 1}, [], {**fields, "levels_ms": 5}]
    wrong.append({**fields, "protocol": 1})
    for told in wrong:
        digest, text = _named(told)
        with pytest.raises(NotOurs, match=digest):
            policies(spark, {digest: text}, [InForce(0, 0, digest)])
    with pytest.raises(NotOurs, match="another digest"):
        policies(spark, {"0" * 16: FIRST.to_json()}, [InForce(0, 0, "0" * 16)])
    with pytest.raises(NotOurs, match="does not hold"):
        policies(spark, {}, [InForce(0, 0, FIRST.digest)])


def test_what_an_old_policy_does_not_say_is_as_the_proxy_reads_it() -> None:
    fields = asdict(FIRST)
    always = ("levels_ms", "max_delay_ms", "allow", "deny", "own_topics", "protocol")
    old = Policy.from_json(json.dumps({name: fields[name] for name in always}))
    assert json.loads(old.to_json()) == json.loads(
        json.dumps({**DEFAULTS, **{name: fields[name] for name in always}})
    )
