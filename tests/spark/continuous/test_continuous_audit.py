"""The continuous audit counts each record once after any stop, and finds faults."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
from confluent_kafka import TopicPartition
from prometheus_client import CollectorRegistry, generate_latest
from pyspark.sql import SparkSession

from spark_jobs import continuous_audit
from spark_jobs.audit_delivery import audit
from spark_jobs.continuous_audit import Gauges, Rounds, Totals, create_topic, publish
from spark_jobs.histories.job import AuditJob
from spark_jobs.kafka.broker import kafka_settings
from spark_jobs.kafka.snapshot import OwnTopics, Selection
from spark_jobs.results.result_tables import AUDIT, VIOLATION
from spark_jobs.results.summary import PORTION, History
from spark_jobs.runtime.errors import ResultsRefused
from spark_jobs.runtime.frames import location
from tests.support.audit_results import verdicts_in
from tests.support.installation.installation import Installation
from tests.support.installation.proxy_process import ProxyProcess
from tests.support.installation.topic_copies import TopicCopy, append
from tests.support.oracle.committed_reader import CommittedReader
from tests.support.quiet_clients import admin_client
from tests.support.records import Outgoing
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SEEN_WITHIN_S = 600
MOST = 20
KEPT_MS = 86_400_000
FAR = ("timer-delay", b"1h")
Header = tuple[str, bytes]


class Scene(NamedTuple):
    """A working proxy, and the folder of a continuous audit."""

    made: Installation
    proxy: ProxyProcess
    orders: str
    folder: Path

    @property
    def topic(self) -> str:
        return f"{self.made.name}.audit"

    def send(self, records: list[tuple[str, tuple[Header, ...]]]) -> None:
        to = ("timer-topic", self.orders.encode())
        self.made.send([Outgoing(b"k", name.encode(), (to, *said), 0) for name, said in records])
        self.made.await_ingested()

    def job(self, folder: Path) -> AuditJob:
        made = self.made
        own = OwnTopics(made.ingress, made.dead_letters, made.outcomes, f"{made.name}.settings")
        kafka = kafka_settings(made.bootstrap)
        return AuditJob(kafka, f"{made.name}.proxy", own, (), location(folder))

    def rounds(
        self,
        spark: SparkSession,
        most: int = 1_000_000,
        tell: Callable[[Totals], None] = lambda _: None,
        keep_ms: int = KEPT_MS,
    ) -> Rounds:
        job = replace(self.job(self.folder), settled_only=True, most=most)
        return Rounds(spark, job, keep_ms, tell)


@pytest.fixture(scope="module")
def scene(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    made = Installation(kafka, tmp_path_factory.mktemp("continuous"), partitions=1)
    try:
        proxy = made.proxy()
        proxy.start()
        orders = made.target("orders", 2)
        yield Scene(made, proxy, orders, tmp_path_factory.mktemp("audit") / "going on")
    finally:
        made.close()


def await_judged(rounds: Rounds, closed: int, pending: int, broken: int = 0) -> None:
    def is_there() -> bool:
        rounds.do()
        totals = rounds.totals
        return (
            sum(totals.verdicts.values()),
            totals.pending,
            sum(totals.violations.values()),
        ) == (closed, pending, broken)

    wait_for(is_there, SEEN_WITHIN_S, f"{closed} judged, {pending} pending: {rounds.totals}")


def test_records_count_once_across_restarts_and_a_second_delivery_is_told_and_shown(
    spark: SparkSession, scene: Scene
) -> None:
    half = ("timer-transaction", b"prepare"), ("timer-id", b"h")
    plain = [(f"plain-{n}", (("timer-delay", b"%dms" % n),)) for n in range(20)]
    waiting = [("waiting", (FAR,)), ("taken back", (FAR, ("timer-id", b"c"))), ("half", half)]
    scene.send([*plain, *waiting])
    await_judged(scene.rounds(spark), len(plain), len(waiting))
    with CommittedReader(scene.made.bootstrap) as reader:
        arrived = [one.record for one in reader.read([scene.orders])]
    append(scene.made.bootstrap, scene.orders, arrived[:1])
    scene.send(
        [
            ("cancel", (("timer-cancel", b"c"),)),
            ("commit", (("timer-transaction", b"commit"), ("timer-id", b"h"))),
        ]
    )
    killed_when_the_audit_was_written(scene.rounds(spark))
    settings, gauges = kafka_settings(scene.made.bootstrap), Gauges()
    create_topic(settings, scene.topic)
    create_topic(settings, scene.topic)

    def tell(totals: Totals) -> None:
        gauges.totals = totals
        publish(totals, settings, scene.topic)

    last = scene.rounds(spark, tell=tell)
    await_judged(last, len(plain) + 5, 1, broken=1)
    good = {"delivered": len(plain) + 1, "cancelled": 1, "applied": 2}
    assert dict(last.totals.verdicts) == {**good, "duplicated": 1}
    assert told(scene)["totals"]["verdicts"] == last.totals.verdicts
    (found,) = violations(spark, scene.folder)
    assert found.verdict == "duplicated"
    assert "kafka-console-consumer.sh" in found.look
    shown = metrics(gauges)
    assert 'delay_proxy_audit_violations_total{verdict="duplicated"} 1.0' in shown
    assert 'delay_proxy_audit_verdicts_total{verdict="delivered"} 21.0' in shown
    assert "delay_proxy_audit_lateness_seconds_count 21.0" in shown
    assert "delay_proxy_audit_pending 1.0" in shown


def killed_when_the_audit_was_written(rounds: Rounds) -> None:
    with (
        patch.object(continuous_audit, "count", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        rounds.do()


def test_an_audit_of_everything_goes_on_from_it(
    spark: SparkSession, scene: Scene, tmp_path: Path
) -> None:
    """It leaves the usual results. Ended records are not read again."""
    after = replace(scene.job(tmp_path / "after"), continue_from=location(scene.folder))
    summary = audit(spark, after, Selection())
    assert (summary.violations, summary.verdicts["pending"]) == (0, 1)
    assert sum(summary.verdicts.values()) == 1


def test_verdicts_that_are_old_go_and_violations_stay(spark: SparkSession, scene: Scene) -> None:
    rounds, history = scene.rounds(spark, keep_ms=0), History(spark, location(scene.folder))
    with patch.object(continuous_audit, "TIDY_EVERY", 1):
        rounds.do()
    last = rounds.totals
    given = history.tables.read("verdicts", AUDIT).select("audit").distinct().collect()
    assert {row.audit for row in given} <= {last.audit}
    left = history.audits.orderBy("audit").collect()
    assert [row.violations for row in left] == [1, 0]
    assert left[-1].audit == last.audit
    assert [one.verdict for one in violations(spark, scene.folder)] == ["duplicated"]
    rounds.do()
    assert replace(rounds.totals, audit="", until_ms=0) == replace(last, audit="", until_ms=0)


def test_first_audit_over_much_is_read_in_portions_and_says_what_one_audit_says(
    spark: SparkSession, scene: Scene, tmp_path: Path
) -> None:
    orders = TopicCopy(scene.made.bootstrap, scene.orders)
    lost = orders.records.pop(orders.of_value(b"plain-7"))
    orders.rewrite()
    scene = scene._replace(folder=tmp_path / "in portions")
    stopped = scene.rounds(spark, MOST)
    assert stopped.do()
    with (
        patch.object(History, "add", side_effect=OSError("No space left on device")),
        pytest.raises(ResultsRefused, match="The disk is full"),
    ):
        stopped.do()
    assert (stopped.totals.verdicts, stopped.totals.pending) == ({}, 0)
    again = scene.rounds(spark, MOST)
    await_judged(again, 24, 1, broken=2)
    rows = History(spark, location(scene.folder)).audits.orderBy("audit").collect()
    portions = [row for row in rows if row.result == PORTION]
    assert len(portions) > 2
    assert [row.result for row in rows[: len(portions)]] == [PORTION] * len(portions)
    assert sum(read_of(row.summary) for row in portions) >= MOST
    summary = audit(spark, scene.job(tmp_path / "at once"), Selection())
    assert summary.violations_by == {"duplicated": 1, "missing": 1}
    assert dict(again.totals.verdicts) == {
        name: number for name, number in summary.verdicts.items() if number and name != "pending"
    }
    whole = verdicts_in(spark, tmp_path / "at once").where("is_violation").collect()
    assert {(one.offset, one.verdict, one.detail) for one in violations(spark, scene.folder)} == {
        (one.offset, one.verdict, one.detail) for one in whole
    }
    origin = (lost.header("timer-origin") or b"").decode()
    (missing,) = [one for one in whole if one.verdict == "missing"]
    assert origin == f"{scene.made.ingress}/{missing.partition}/{missing.offset}"


def test_what_retention_deletes_before_it_is_read_is_told_and_the_audit_goes_on(
    spark: SparkSession, scene: Scene, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Deliveries are deleted before and after a portion is read, and ingress records before."""
    scene = scene._replace(folder=tmp_path / "stopped")
    scene.send([(f"last-{n}", ()) for n in range(6)])
    delete_before(scene.made.bootstrap, {(scene.made.ingress, 0): 2})
    portions = scene.rounds(spark, MOST)
    assert portions.do()
    delete_before(scene.made.bootstrap, {(scene.orders, 0): -1, (scene.orders, 1): -1})
    while portions.do():
        pass
    assert portions.totals.lost == 2
    assert portions.totals.violations == {}
    assert portions.totals.verdicts["unverifiable"] >= 4
    said = capsys.readouterr().err
    assert f"{scene.made.ingress}, partition 0, from offset 0 to 1 before" in said


def read_of(summary: str) -> int:
    return sum(one["read"] for one in json.loads(summary)["control"])


def violations(spark: SparkSession, folder: Path) -> list[Any]:
    return History(spark, location(folder)).tables.read("violations", VIOLATION).collect()


def delete_before(bootstrap: str, offsets: dict[tuple[str, int], int]) -> None:
    """Delete records before these offsets as retention does. -1 is the end."""
    below = [TopicPartition(*place, offset) for place, offset in offsets.items()]
    admin = admin_client(bootstrap)
    for deleted in admin.delete_records(below).values():
        deleted.result(SEEN_WITHIN_S)


def told(scene: Scene) -> dict[str, dict[str, dict[str, int]]]:
    with CommittedReader(scene.made.bootstrap) as reader:
        messages = [one.record for one in reader.read([scene.topic])]
    return {(one.key or b"").decode(): json.loads(one.value or b"{}") for one in messages}


def metrics(gauges: Gauges) -> str:
    registry = CollectorRegistry()
    registry.register(gauges)
    return generate_latest(registry).decode()
