"""The audit and the proxy read every record alike."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import pytest
from pyspark.sql import DataFrame, SparkSession

from proxy.protocol.aliases import KNOWN_ALIASES
from proxy.protocol.policy import Policy, RetryGroup
from proxy.protocol.proofs import HopAuthenticator, HopKey
from proxy.protocol.request_reader import RequestReader
from spark_jobs.kafka.sources import RECORDS
from spark_jobs.records.hashes import HopKeys
from spark_jobs.requests.parsing import parsed
from spark_jobs.requests.policies import InForce, policies
from tests.support.any_foreign_requests import FOREIGN, FOREIGN_SHAPES, SOUND_FOREIGN
from tests.support.any_requests import AnyRecord, AnyRequests
from tests.support.proxy_reading import NOTHING, told

pytestmark = pytest.mark.usefixtures("compiled")

RECORDS_EACH: Final = 1_500
SIGNED_BY: Final = HopAuthenticator(HopKey(bytes(range(32))), "topic-id")
HOP_KEY: Final = SIGNED_BY.key.digest
HOP_KEYS: Final = HopKeys(SIGNED_BY.topic_id, {HOP_KEY: SIGNED_BY.key.secret})
POLICIES: Final = [
    Policy(),
    Policy(
        roll_after_ms=4_001, max_delay_ms=86_400_000, max_checks=0, hop_key=HOP_KEY, max_past_ms=7
    ),
    Policy(hop_key=HOP_KEY, recalls_in="timer.ingress"),
    Policy(recalls_in="timer.ingress"),
    Policy(recalls_in="timer.ingress", hop_key=HOP_KEY, proves_recalls=True),
    Policy(recalls_in="timer.ingress", hop_key=HOP_KEY, serves=()),
    Policy(recalls_in="timer.ingress", serves=("cancel", "retry", "transaction")),
    Policy(
        levels_ms=(10, 20, 30),
        allow=("orders", "sh[a-o]p.*", "retry.?"),
        deny=("*secret", "[!a-z]*", "x[", "[]x]", "[]"),
        retry_groups=(RetryGroup("own", (5, 6), 2), RetryGroup("secret", (0, 7), 16)),
        retry_prefix="again-",
        dlq_prefix="__",
        own_topics=("shop.a",),
        immunity_ms=7,
        check_interval_ms=3,
        max_checks=2,
    ),
    Policy(
        allow=("orders", "again-o*", "d*"),
        retry_groups=(RetryGroup("secret", (0, 7), 16),),
        retry_prefix="again-",
        dlq_prefix="d",
        retry_max_attempts=2,
        checks_groups=True,
    ),
    Policy(retry_first_level=40, retry_max_attempts=1, deny=("retry.own", "dlq.*"), allow=()),
]
WITH_ALIASES: Final = [
    *(Policy(aliases=(alias,), recalls_in="timer.ingress") for alias in KNOWN_ALIASES),
    *(
        Policy(aliases=KNOWN_ALIASES, hop_key=HOP_KEY),
        Policy(aliases=KNOWN_ALIASES[::-1], roll_after_ms=4_001),
        Policy(),
    ),
]


def spark_records(spark: SparkSession, records: Iterable[AnyRecord]) -> DataFrame:
    schema = ", ".join(f"{name} {kind}" for name, kind in RECORDS.items())
    rows = [("ingress", *record, True, None) for record in records]
    return spark.createDataFrame(rows, schema, verifySchema=False)


def differences(
    spark: SparkSession, records: list[AnyRecord], judges: dict[tuple[int, int], Policy]
) -> list[tuple[Any, ...]]:
    """Return the differences. `judges` has policies by partition and first offset."""
    texts = {policy.digest: policy.to_json() for policy in judges.values()}
    in_force = [InForce(p, first, policy.digest) for (p, first), policy in judges.items()]
    rows = parsed(
        spark_records(spark, records), policies(spark, texts, in_force, HOP_KEYS)
    ).collect()
    read = {(row.partition, row.offset): row.asDict() for row in rows}
    assert len(read) == len(rows) == len(records)
    readers = {
        place: RequestReader(policy, SIGNED_BY if policy.hop_key else None)
        for place, policy in judges.items()
    }
    found = []
    for record in records:
        place = max(p for p in judges if p <= (record.partition, record.offset))
        expected = told(
            readers[place].read(
                *(record.headers, record.key, record.value, record.timestamp_ms),
                *(record.partition, record.offset),
            )
        )
        row = _columns(read[record.partition, record.offset])
        if row != expected:
            wrong = {n: (row[n], expected[n]) for n in NOTHING if row[n] != expected[n]}
            found.append((record, wrong))
    return found


def _columns(row: dict[str, Any]) -> dict[str, Any]:
    return {n: bytes(v) if isinstance(v := row[n], bytearray) else v for n in NOTHING}


def test_both_readings_agree_on_whatever_records_ask_for(spark: SparkSession) -> None:
    requests = AnyRequests(seed=7, authenticator=SIGNED_BY)
    judges = {(number, 0): policy for number, policy in enumerate(POLICIES)}
    last, each = len(POLICIES), RECORDS_EACH // len(POLICIES)
    judges |= {(last, each * number): policy for number, policy in enumerate(POLICIES)}
    records = [
        record
        for partition in range(last + 1)
        for record in requests.records(partition, range(RECORDS_EACH))
    ]
    found = differences(spark, records, judges)
    assert not found, f"{len(found)} differ, such as {found[:5]}"


def test_both_readings_agree_on_other_schedulers_words(spark: SparkSession) -> None:
    requests = AnyRequests(8, FOREIGN_SHAPES, FOREIGN, SOUND_FOREIGN, SIGNED_BY)
    judges = {(number, 0): policy for number, policy in enumerate(WITH_ALIASES)}
    records = [
        record
        for partition in range(len(WITH_ALIASES))
        for record in requests.records(partition, range(RECORDS_EACH))
    ]
    found = differences(spark, records, judges)
    assert not found, f"{len(found)} differ, such as {found[:5]}"
