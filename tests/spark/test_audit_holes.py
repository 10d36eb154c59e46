"""Attempts to fool the audit by cheats, retention or operators in a real proxy's topics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from proxy.clock import wall_clock_ms
from spark_jobs.audit_scope import LatenessLimits
from spark_jobs.kafka.broker import Broker, kafka_settings
from spark_jobs.results.summary import HELD, NOT_ALL_JUDGED, VIOLATED
from spark_jobs.runtime.errors import ResultsRefused
from spark_jobs.runtime.frames import location
from spark_jobs.tables import Tables
from tests.spark.meddled_work import (
    CHECKS,
    HOUR_MS,
    PLAIN,
    WITHIN_S,
    Work,
    at,
    outcome_at,
    plant_excuses,
    plant_false_burials,
    plant_ignored,
    plant_small_lies,
    written,
)
from tests.support.audit_results import verdicts_in
from tests.support.installation.admin_client import call
from tests.support.installation.committing import open_transaction
from tests.support.installation.installation import Installation
from tests.support.installation.topic_copies import TopicCopy, append, with_header
from tests.support.oracle.committed_reader import CommittedReader
from tests.support.records import set_topic_config
from tests.support.waiting import wait_for

RETENTION_WITHIN_S = 600
"""A broker looks for deletable segments every five minutes."""
pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture(scope="module")
def done(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Work]:
    made = Installation(kafka, tmp_path_factory.mktemp("holes"), partitions=1)
    try:
        orders = made.target("orders", 2)
        proxy = made.proxy(transactions=CHECKS)
        proxy.start_ready()
        dropped = made.target("dropped")
        rule = {"overdue": {"older_than": "1h", "action": "drop"}}
        assert call(proxy, "PUT", f"/limits/{dropped}", rule)[0] == 200
        records = written(orders, dropped, made.check_topic(), 4_000 + wall_clock_ms())
        made.send(records)
        made.await_ingested()
        made.await_ends(len(records) - 2, WITHIN_S)
        assert proxy.stop() == 0, proxy.log_tail()
        with CommittedReader(kafka) as reader:
            read = [one.record for one in reader.read([made.ingress])]
        own = [one for one in read if one.header("timer-hop-from") is None]
        ends = (orders, made.outcomes, made.dead_letters, *made.check_topics)
        held = tuple(TopicCopy(kafka, topic) for topic in ends)
        yield Work(made, orders, {(one.value or b"").decode(): one for one in own}, held)
    finally:
        made.close()


@pytest.fixture
def work(done: Work) -> Work:
    return done.restored()


def emptied_by_retention(work: Work, topic: str) -> None:
    made = work.made
    set_topic_config(made.bootstrap, topic, {"retention.ms": "1"})

    def is_empty() -> bool:
        start, end = _ends(made.bootstrap, topic)
        return 0 < start == end

    wait_for(is_empty, RETENTION_WITHIN_S, f"retention to empty {topic}")
    set_topic_config(made.bootstrap, topic, {"retention.ms": "-1"})


def _ends(bootstrap: str, topic: str) -> tuple[int, int]:
    broker, place = Broker(kafka_settings(bootstrap)), (topic, 0)
    return broker.log_starts([place])[place], broker.high_watermarks([place])[place]


def test_1_emptied_outcomes_do_not_explain_a_thousand_deliveries_that_are_gone(
    spark: SparkSession, work: Work, tmp_path: Path
) -> None:
    emptied_by_retention(work, work.made.outcomes)
    orders = TopicCopy(work.made.bootstrap, work.orders)
    orders.records = [one for one in orders.records if not (one.value or b"").startswith(b"p-")]
    orders.rewrite()
    summary = work.audited(spark, tmp_path)
    assert summary.violations_by == {"missing": PLAIN}
    assert summary.verdicts["unverifiable"] > 0


def test_2_what_is_late_or_overdue_is_counted_and_a_proxy_that_stands_still_is_no_proof(
    spark: SparkSession, work: Work, tmp_path: Path
) -> None:
    later = work.places["waiting"].timestamp_ms + 2 * HOUR_MS
    stands_still = work.audited(spark, tmp_path, at_ms=later)
    assert stands_still.exit_code == NOT_ALL_JUDGED
    assert (stands_still.violations, stands_still.overdue) == (0, 3)
    assert stands_still.until_ms < later - HOUR_MS
    then = work.audited(spark, tmp_path, at_ms=work.soon_ms)
    assert (then.exit_code, then.overdue) == (HELD, 0)
    assert then.verdicts["expired"] == 2, "undecided, and dropped by a rule set at run time"

    orders = TopicCopy(work.made.bootstrap, work.orders)
    for name, late_ms in (("p-7", 5_000), ("same-1", 3_000)):
        one = orders.records[at(orders, name)]
        due_ms = int(one.header("timer-due") or b"")
        orders.change(at(orders, name), timestamp_ms=due_ms + late_ms)
    orders.rewrite()
    asked = LatenessLimits(4_000, (("other-*", 1),))
    summary = work.audited(spark, tmp_path, at_ms=later, limits=asked)
    assert summary.exit_code == VIOLATED
    assert summary.violations_by == {"late": 1, "overdue": 3}
    assert work.found(spark, tmp_path)["p-7"][0] == "late"


def test_3_4_5_6_what_cannot_be_is_named_whatever_is_claimed(
    spark: SparkSession, work: Work, tmp_path: Path
) -> None:
    bootstrap, made = work.made.bootstrap, work.made
    orders, outcomes, letters = (
        TopicCopy(bootstrap, topic) for topic in (work.orders, made.outcomes, made.dead_letters)
    )
    expected = plant_ignored(work, orders, outcomes)
    expected |= plant_excuses(work, orders, outcomes, letters)
    expected |= plant_small_lies(orders, outcomes, work)
    for copy in (orders, outcomes, letters):
        copy.rewrite()
    set_topic_config(bootstrap, work.orders, {"message.timestamp.type": "LogAppendTime"})
    early = next(one for one in orders.records if one.value == b"taken")
    due = b"%d" % (work.places["waiting"].timestamp_ms + HOUR_MS)
    headers = with_header(early.headers, "timer-origin", work.origin("waiting").encode())
    append(
        bootstrap,
        work.orders,
        [replace(early, value=b"waiting", headers=with_header(headers, "timer-due", due))],
    )
    expected["waiting"] = "early"
    checks = work.made.check_topics[0]
    append(bootstrap, checks, [TopicCopy(bootstrap, checks).records[0]])
    expected["asked"] = "contradicted"
    work.audited(spark, tmp_path)
    found = work.found(spark, tmp_path)
    assert {name: verdict for name, (verdict, _) in found.items()} == expected
    assert "ms before its due" in found["waiting"][1]
    assert found["asked"][1].startswith("check 1 came 2 times")
    rows = verdicts_in(spark, tmp_path / "audit").where("kind = 'record'").collect()
    attested = {row.offset: row.is_attested for row in rows}
    assert attested[work.places["waiting"].offset]
    assert not attested[work.places["p-1"].offset]


def test_3_ignored_cancel_and_replacement_are_named_once_their_time_has_passed(
    spark: SparkSession, work: Work, tmp_path: Path
) -> None:
    """The audit time is after the due time, so nothing was early."""
    bootstrap, made = work.made.bootstrap, work.made
    orders, outcomes = (TopicCopy(bootstrap, topic) for topic in (work.orders, made.outcomes))
    plant_ignored(work, orders, outcomes)
    orders.rewrite()
    outcomes.rewrite()
    later_ms = work.places["old"].timestamp_ms + 3 * HOUR_MS
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spark_jobs.kafka.snapshot.now_ms", lambda: later_ms)
        work.audited(spark, tmp_path, at_ms=later_ms)
    found = work.found(spark, tmp_path)
    assert {name: verdict for name, (verdict, _) in found.items()} == {
        "cancel": "contradicted",
        "old": "contradicted",
    }
    assert "it says missed" in found["cancel"][1]
    assert "which replaces it, was read" in found["old"][1]


def test_3_5_dead_letters_do_not_hide_what_was_ignored(
    spark: SparkSession, work: Work, tmp_path: Path
) -> None:
    bootstrap, made = work.made.bootstrap, work.made
    orders, outcomes, letters = (
        TopicCopy(bootstrap, topic) for topic in (work.orders, made.outcomes, made.dead_letters)
    )
    expected = plant_false_burials(work, orders, outcomes, letters)
    for copy in (orders, outcomes, letters):
        copy.rewrite()
    later_ms = work.places["old"].timestamp_ms + 3 * HOUR_MS
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spark_jobs.kafka.snapshot.now_ms", lambda: later_ms)
        work.audited(spark, tmp_path, at_ms=later_ms)
    found = work.found(spark, tmp_path)
    assert {name: verdict for name, (verdict, _) in found.items()} == dict.fromkeys(
        expected, "contradicted"
    )
    assert "ended as dead-lettered" in found["cancel"][1]
    assert any("which is impossible for a" in why for _, why in found.values())


def test_7_topics_nobody_asked_for_compaction_and_open_transactions(
    spark: SparkSession, work: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, bootstrap = work.made, work.made.bootstrap
    elsewhere = made.target("elsewhere")
    with CommittedReader(bootstrap) as reader:
        one = next(iter(reader.read([work.orders]))).record
    append(bootstrap, elsewhere, [replace(one, partition=0)])
    asked = work.audited(spark, tmp_path)
    assert asked.violations == 0
    assert elsewhere in asked.audited.uncovered
    everywhere = work.audited(spark, tmp_path, targets=[work.orders, elsewhere])
    assert everywhere.violations_by == {"duplicated": 1}

    outcomes = TopicCopy(bootstrap, made.outcomes)
    del outcomes.records[outcome_at(outcomes, work.origin("taken"))]
    outcomes.rewrite()
    set_topic_config(bootstrap, made.outcomes, {"cleanup.policy": "compact"})
    compacted = work.audited(spark, tmp_path, at_ms=work.soon_ms)
    assert (compacted.violations, compacted.exit_code) == (0, NOT_ALL_JUDGED)
    why = f"it should have ended: {made.outcomes} is compacted"
    assert compacted.not_judged == {why: 1}

    orders = len(TopicCopy(bootstrap, work.orders).records)
    monkeypatch.setattr("spark_jobs.kafka.snapshot.SETTLED_WITHIN_S", 0.3)
    producer = open_transaction(bootstrap)
    for partition in (0, 1):
        producer.produce(work.orders, b"never", partition=partition)
    producer.flush()
    summary = work.audited(spark, tmp_path, at_ms=work.soon_ms)
    producer.abort_transaction()
    assert orders > PLAIN
    assert (summary.violations, summary.exit_code) == (0, NOT_ALL_JUDGED)
    assert summary.verdicts["delivered"] == orders
    (why,) = summary.not_judged
    assert why.startswith(f"a transaction is open in {work.orders}, partition ")


def test_7_target_that_was_created_anew_between_two_audits_is_known(
    spark: SparkSession, work: Work, tmp_path: Path
) -> None:
    """Records whose ends were in the deleted topic cannot be judged any more."""
    first = work.audited(spark, tmp_path, "first", at_ms=1)
    assert (first.violations, first.verdicts["pending"]) == (0, 4)
    lost = TopicCopy(work.made.bootstrap, work.orders)
    lost.records.clear()
    lost.rewrite()
    second = work.audited(spark, tmp_path, "second", continue_from=location(tmp_path / "first"))
    assert (second.violations, second.verdicts["pending"]) == (0, 4)


def spoilt(spoiling: Callable[[Tables], None]) -> Any:
    append = Tables.append

    def spoils(tables: Tables, name: str, *given: Any) -> None:
        append(tables, name, *given)
        if name == "verdicts":
            spoiling(tables)

    return spoils


def test_8_an_audit_whose_verdicts_are_lost_is_none(
    spark: SparkSession, work: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = work.audited(spark, tmp_path)
    (total,) = whole.control
    assert total.read == total.verdicts > PLAIN

    def lose_a_verdict(tables: Tables) -> None:
        tables.delete("verdicts", f"offset = {work.places['waiting'].offset}")

    def lose_the_files(_: Tables) -> None:
        """Remove files as if workers wrote to their own disks."""
        for file in (tmp_path / "audit" / "verdicts").rglob("*.parquet"):
            file.unlink()

    lost = rf"do not balance: .* {total.read - 1} have a verdict"
    for spoiling, says in ((lose_a_verdict, lost), (lose_the_files, "do not share")):
        with monkeypatch.context() as patched:
            patched.setattr(Tables, "append", spoilt(spoiling))
            with pytest.raises(ResultsRefused, match=says):
                work.audited(spark, tmp_path)
