"""The audit that goes on counts each record once, whatever stops it, and sees what is broken."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import NamedTuple

import pytest
from confluent_kafka import TopicPartition
from prometheus_client import CollectorRegistry, generate_latest
from pyspark.sql import SparkSession

from spark_jobs.audit_delivery import audit
from spark_jobs.continuous.batches import Batches, Publication
from spark_jobs.continuous.continuous_audit import CHECKPOINT, ContinuousAudit, Pace
from spark_jobs.continuous.gathering import Gathering
from spark_jobs.continuous.gauges import Gauges
from spark_jobs.continuous.state import BEFORE_ALL, Gathered, States, Tally
from spark_jobs.continuous.totals import Totals
from spark_jobs.evidence.audit_job import AuditJob, Selection
from spark_jobs.kafka.kafka_settings import kafka_settings
from spark_jobs.kafka.positions import Range, count_of
from spark_jobs.kafka.snapshot import OwnTopics
from spark_jobs.results.result_tables import VIOLATION
from spark_jobs.runtime.errors import NotOurs, ResultsRefused
from spark_jobs.runtime.location import location
from spark_jobs.tables.tables import Tables
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
EACH_SECOND = Pace(1, 1_000_000)
MOST = 10
"""Records that are read at once, where the topics hold some fifty."""
FAR = ("timer-delay", b"1h")
Header = tuple[str, bytes]


class Scene(NamedTuple):
    """A proxy at work and an audit that goes on, its state in a folder."""

    made: Installation
    proxy: ProxyProcess
    orders: str
    folder: Path

    @property
    def topic(self) -> str:
        return f"{self.made.name}.audit"

    def send(self, records: list[tuple[str, tuple[Header, ...]]]) -> None:
        """Write records whose value is their name, all into one partition."""
        to = ("timer-topic", self.orders.encode())
        self.made.send([Outgoing(b"k", name.encode(), (to, *said), 0) for name, said in records])

    def job(self, output: Path) -> AuditJob:
        made = self.made
        own = OwnTopics(made.ingress, made.dead_letters, made.outcomes, f"{made.name}.settings")
        targets = (f"{made.name}.*",)
        return AuditJob(
            kafka_settings(made.bootstrap), f"{made.name}.proxy", own, targets, location(output)
        )

    def audit(
        self, spark: SparkSession, gauges: Gauges | None = None, max_offsets: int = 1_000_000
    ) -> ContinuousAudit:
        telling, pace = Publication(self.topic), Pace(2, max_offsets)
        going = ContinuousAudit(spark, self.job(self.folder), telling, pace, gauges or Gauges())
        going.start()
        return going


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


def await_judged(audit: ContinuousAudit, closed: int, pending: int, broken: int = 0) -> None:
    def is_there() -> bool:
        assert not audit.wait(0.05)
        totals = audit.tally.totals if audit.tally else None
        return totals is not None and (
            sum(totals.verdicts.values()),
            totals.pending,
            sum(totals.violations.values()),
        ) == (closed, pending, broken)

    wait_for(is_there, SEEN_WITHIN_S, f"{closed} judged, {pending} pending: {audit.tally}")


def test_records_count_once_across_restarts_and_a_second_delivery_is_told_and_shown(
    spark: SparkSession, scene: Scene
) -> None:
    half = ("timer-transaction", b"prepare"), ("timer-id", b"h")
    plain = [(f"plain-{n}", (("timer-delay", b"%dms" % n),)) for n in range(20)]
    waiting = [("waiting", (FAR,)), ("taken back", (FAR, ("timer-id", b"c"))), ("half", half)]
    scene.send([*plain, *waiting])
    scene.made.await_ingested()
    first = scene.audit(spark)
    try:
        await_judged(first, len(plain), len(waiting))
    finally:
        first.stop()
    forget_the_last_commit(spark, scene.folder)
    with CommittedReader(scene.made.bootstrap) as reader:
        arrived = [one.record for one in reader.read([scene.orders])]
    append(scene.made.bootstrap, scene.orders, arrived[:1])
    scene.send(
        [
            ("cancel", (("timer-cancel", b"c"),)),
            ("commit", (("timer-transaction", b"commit"), ("timer-id", b"h"))),
        ]
    )
    gauges = Gauges()
    second = scene.audit(spark, gauges)
    try:
        await_judged(second, len(plain) + 5, 1, broken=1)
    finally:
        second.stop()
    assert second.tally is not None
    counted = dict(second.tally.totals.verdicts)
    good = {"delivered": len(plain) + 1, "cancelled": 1, "applied": 2}
    assert counted == {**good, "duplicated": 1}
    assert sums_of_windows(spark, scene.folder) == counted
    assert told(scene)["totals"]["verdicts"] == counted
    found = Tables(spark, location(scene.folder)).read("violations", VIOLATION).collect()
    assert [row.verdict for row in found] == ["duplicated"]
    assert "kafka-console-consumer.sh" in found[0].look
    shown = metrics(gauges)
    assert 'delay_proxy_audit_violations_total{verdict="duplicated"} 1.0' in shown
    assert 'delay_proxy_audit_verdicts_total{verdict="delivered"} 21.0' in shown
    assert "delay_proxy_audit_lateness_seconds_count 21.0" in shown
    assert "delay_proxy_audit_pending 1.0" in shown


def test_state_of_another_audit_is_refused(spark: SparkSession, scene: Scene) -> None:
    job = replace(scene.job(scene.folder), group="somebody")
    another = ContinuousAudit(spark, job, Publication(None), EACH_SECOND, Gauges())
    with pytest.raises(ResultsRefused, match="not of somebody"):
        another.start()


def test_what_ends_a_batch_is_told_however_long_its_story(
    spark: SparkSession, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_batches: Batches, _number: int) -> None:
        raise OSError("\n".join(["No space left on device", *["\tat some.java.Method"] * 5000]))

    monkeypatch.setattr(Batches, "do", fail)
    going = ContinuousAudit(
        spark, scene.job(scene.folder), Publication(None), EACH_SECOND, Gauges()
    )
    going.start()
    with pytest.raises(ResultsRefused, match="The disk is full"):
        going.wait(SEEN_WITHIN_S)


def test_audit_that_is_stopped_leaves_a_batch_in_which_spark_has_nothing_to_interrupt(
    spark: SparkSession, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_begun, was_done = Event(), []

    def plan_for_long(batches: Batches, number: int) -> None:
        for _ in range(SEEN_WITHIN_S):
            has_begun.set()
            batches.go_on()
            Event().wait(1)
        was_done.append(number)

    monkeypatch.setattr(Batches, "do", plan_for_long)
    going = ContinuousAudit(
        spark, scene.job(scene.folder), Publication(None), EACH_SECOND, Gauges()
    )
    going.start()
    assert has_begun.wait(SEEN_WITHIN_S)
    going.stop()
    assert not was_done
    assert going.wait(SEEN_WITHIN_S)


def test_first_batch_over_much_is_read_in_portions_and_says_what_one_audit_says(
    spark: SparkSession, scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A delivery is lost and another is there twice; it is stopped in the midst of it, too."""
    gather, sizes = Gathering.gather, list[int]()

    def noted(self: Gathering, tally: Tally, portion: list[Range]) -> Tally:
        if len(sizes) == 2:
            sizes.append(0)
            raise OSError("No space left on device")
        sizes.append(count_of(portion))
        return gather(self, tally, portion)

    monkeypatch.setattr(Gathering, "gather", noted)
    orders = TopicCopy(scene.made.bootstrap, scene.orders)
    lost = orders.records.pop(orders.of_value(b"plain-7"))
    orders.rewrite()
    scene = scene._replace(folder=tmp_path / "in portions")
    stopped = scene.audit(spark, max_offsets=MOST)
    with pytest.raises(ResultsRefused, match="The disk is full"):
        stopped.wait(SEEN_WITHIN_S)
    left = states(spark, scene.folder).tally(BEFORE_ALL)
    assert (left.gathered.portions, left.gathered.offsets) == (2, 2 * MOST)
    assert left.totals == Totals()
    again = scene.audit(spark, max_offsets=MOST)
    try:
        await_judged(again, 24, 1, broken=2)
    finally:
        again.stop()
    held = count_of(left.horizon.ends) + sum(one.stable_end for one in left.horizon.positions)
    assert sum(sizes) == (len(sizes) - 1) * MOST
    assert held - MOST <= sum(sizes) < held
    assert again.tally is not None
    assert again.tally.gathered == Gathered()
    found = Tables(spark, location(scene.folder)).read("violations", VIOLATION).collect()
    whole = replace(scene.job(tmp_path / "at once"), targets=())
    summary = audit(spark, whole, Selection())
    assert summary.violations_by == {"duplicated": 1, "missing": 1}
    assert dict(again.tally.totals.verdicts) == {
        name: count for name, count in summary.verdicts.items() if count and name != "pending"
    }
    rows = verdicts_in(spark, tmp_path / "at once").where("is_violation").collect()
    assert {(one.offset, one.verdict, one.detail) for one in found} == {
        (one.offset, one.verdict, one.detail) for one in rows
    }
    origin = (lost.header("timer-origin") or b"").decode()
    (missing,) = [one for one in rows if one.verdict == "missing"]
    assert origin == f"{scene.made.ingress}/{missing.partition}/{missing.offset}"


def test_target_that_was_created_anew_ends_the_audit_with_a_sentence(
    spark: SparkSession, scene: Scene
) -> None:
    """The test before this one has written the target anew."""
    going = silent(spark, scene)
    going.start()
    with pytest.raises(NotOurs, match=f"The topic {scene.orders} was deleted or created anew"):
        going.wait(SEEN_WITHIN_S)


def test_what_retention_deletes_while_the_audit_is_stopped_is_told_and_it_goes_on(
    spark: SparkSession, scene: Scene, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its horizon asks for all that the topics held: deliveries, and the first ingress records."""
    scene = scene._replace(folder=tmp_path / "stopped")
    scene.send([(f"last-{n}", ()) for n in range(6)])
    scene.made.await_ingested()
    begun = Batches(
        spark, scene.job(scene.folder), Publication(scene.topic), 99, told_nobody, go_on
    )
    begun.begin()
    gone = {(scene.made.ingress, 0): 2, (scene.orders, 0): -1, (scene.orders, 1): -1}
    delete_before(scene.made.bootstrap, gone)
    going = scene.audit(spark)
    try:
        wait_for(lambda: has_judged(going), SEEN_WITHIN_S, "a batch")
    finally:
        going.stop()
    assert going.tally is not None
    assert going.tally.lost == 2
    assert going.tally.totals.violations == {}
    assert going.tally.totals.verdicts["unverifiable"] >= 4
    told = capsys.readouterr().err
    assert f"{scene.made.ingress}, partition 0, from offset 0 to 1 before that was read" in told
    assert f"Retention has deleted {scene.orders}, partition " in told


def has_judged(audit: ContinuousAudit) -> bool:
    assert not audit.wait(0.05)
    return audit.tally is not None and bool(audit.tally.totals.verdicts)


def told_nobody(_number: int, _tally: Tally) -> None:
    """No batch is done."""


def go_on() -> None:
    """Nobody stops it."""


def delete_before(bootstrap: str, offsets: dict[tuple[str, int], int]) -> None:
    """Delete records before these offsets as retention would; -1 is the end."""
    below = [TopicPartition(*place, offset) for place, offset in offsets.items()]
    admin = admin_client(bootstrap)
    for deleted in admin.delete_records(below).values():
        deleted.result(SEEN_WITHIN_S)


def silent(spark: SparkSession, scene: Scene) -> ContinuousAudit:
    """One that publishes nothing."""
    return ContinuousAudit(spark, scene.job(scene.folder), Publication(None), EACH_SECOND, Gauges())


def forget_the_last_commit(spark: SparkSession, folder: Path) -> None:
    """As if the process had been killed when the batch was done and Spark did not know it yet."""
    commits, done = folder / CHECKPOINT / "commits", states(spark, folder).newest()
    for name in (f"{done}", f".{done}.crc"):
        (commits / name).unlink(missing_ok=True)


def states(spark: SparkSession, folder: Path) -> States:
    return States(spark, Tables(spark, location(folder)))


def sums_of_windows(spark: SparkSession, folder: Path) -> dict[str, int]:
    newest = states(spark, folder).newest()
    assert newest is not None
    rows = states(spark, folder).read(newest).windows.groupBy("verdict").sum("records").collect()
    return {row.verdict: row[1] for row in rows}


def told(scene: Scene) -> dict[str, dict[str, dict[str, int]]]:
    """The latest message of each key."""
    with CommittedReader(scene.made.bootstrap) as reader:
        messages = [one.record for one in reader.read([scene.topic])]
    return {(one.key or b"").decode(): json.loads(one.value or b"{}") for one in messages}


def metrics(gauges: Gauges) -> str:
    registry = CollectorRegistry()
    registry.register(gauges)
    return generate_latest(registry).decode()
