"""Chained audits find what one audit of everything finds, and read each record once."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple
from unittest.mock import MagicMock

import pytest
from pyspark.sql import SparkSession

from spark_jobs.audit_delivery import audit
from spark_jobs.histories.job import AuditJob, RepeatInputs, TableHash, read_repeat_inputs
from spark_jobs.kafka.broker import kafka_settings
from spark_jobs.kafka.snapshot import OwnTopics, Selection
from spark_jobs.results.result_tables import newest_of_chain
from spark_jobs.results.summary import History, Summary, new_name
from spark_jobs.runtime.errors import NotOurs, ResultsRefused
from spark_jobs.runtime.frames import location
from tests.support.audit_results import verdicts_in
from tests.support.installation.installation import Installation
from tests.support.installation.proxy_process import ProxyProcess
from tests.support.installation.topic_copies import append
from tests.support.oracle.committed_reader import CommittedReader
from tests.support.records import Outgoing

pytestmark = [pytest.mark.integration, pytest.mark.slow]

ENDED_WITHIN_S = 180
WAITING = ("waiting-0", "waiting-1", "waiting-2", "undecided")
FAR = ("timer-delay", b"1h")
Header = tuple[str, bytes]


class Trail(NamedTuple):
    """A working proxy, and the results folder of consecutive audits."""

    made: Installation
    proxy: ProxyProcess
    orders: str
    folder: Path

    def send(self, *records: tuple[str, tuple[Header, ...]]) -> None:
        to = ("timer-topic", self.orders.encode())
        self.made.send(
            [Outgoing(b"k", name.encode(), (to, *said), 0) for name, said in records],
        )
        self.made.await_ingested()

    def audited(
        self,
        spark: SparkSession,
        name: str,
        after: str | None = None,
        selection: Selection | None = None,
        again: RepeatInputs | None = None,
    ) -> Summary:
        """Run the named audit, as a continuation of `after`, or `again`."""
        made = self.made
        own = OwnTopics(made.ingress, made.dead_letters, made.outcomes, f"{made.name}.settings")
        kafka = kafka_settings(made.bootstrap)
        earlier = location(self.folder / after) if after else None
        output = location(self.folder / name)
        job = AuditJob(kafka, f"{made.name}.proxy", own, (), output, earlier)
        if again:
            job = job.as_in(again)
        return audit(spark, job, selection or Selection())

    def verdicts(self, spark: SparkSession, name: str) -> dict[int, str]:
        rows = newest_of_chain(History(spark, location(self.folder / name))).collect()
        return {row.offset: row.verdict for row in rows}


@pytest.fixture(scope="module")
def trail(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trail]:
    made = Installation(kafka, tmp_path_factory.mktemp("continued"), partitions=1)
    try:
        orders = made.target("orders", 2)
        proxy = made.proxy()
        proxy.start()
        trail = Trail(made, proxy, orders, tmp_path_factory.mktemp("audits") / "one by one")
        trail.send(("first of all", ()))
        yield trail
    finally:
        made.close()


def half(what: bytes, ident: bytes) -> tuple[Header, ...]:
    return ("timer-transaction", what), ("timer-id", ident)


def beginnings() -> list[tuple[str, tuple[Header, ...]]]:
    return [
        *[(f"plain-{n}", (("timer-delay", b"%dms" % (n * 10)),)) for n in range(8)],
        *[(f"waiting-{n}", (FAR,)) for n in range(3)],
        ("soon", (("timer-delay", b"9s"),)),
        *[(f"cancelled-{n}", (FAR, ("timer-id", b"c%d" % n))) for n in range(3)],
        ("replaced", (FAR, ("timer-id", b"r"))),
        ("half", half(b"prepare", b"h")),
        ("half and later", (("timer-delay", b"11s"), *half(b"prepare", b"l"))),
        ("commit early", half(b"commit", b"l")),
        ("undone", half(b"prepare", b"u")),
        ("undecided", half(b"prepare", b"z")),
        ("twice", (("timer-id", b"t"),)),
        ("unreadable", (("timer-delay", b"soon"),)),
        ("to nowhere", (("timer-topic", b"nowhere-at-all"),)),
    ]


def decisions() -> list[tuple[str, tuple[Header, ...]]]:
    return [
        *[(f"cancel-{n}", (("timer-cancel", b"c%d" % n),)) for n in range(3)],
        ("cancelled again", (("timer-cancel", b"c0"),)),
        ("newer", (("timer-id", b"r"),)),
        ("commit", half(b"commit", b"h")),
        ("commit again", half(b"commit", b"h")),
        ("rollback", half(b"rollback", b"u")),
        ("cancel too late", (("timer-cancel", b"t"),)),
        ("goes to nowhere, too", (("timer-topic", b"nowhere-at-all"),)),
    ]


def test_audits_one_after_the_other_find_what_one_finds_and_read_on_where_the_last_one_ended(
    spark: SparkSession, trail: Trail
) -> None:
    trail.send(*beginnings())
    first = trail.audited(spark, "chain")
    trail.send(*decisions())
    trail.made.await_ends(1 + len(beginnings()) + len(decisions()) - len(WAITING), ENDED_WITHIN_S)
    assert trail.proxy.stop() == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(History, "add", MagicMock(side_effect=OSError("disk failure")))
        with pytest.raises(ResultsRefused, match="disk failure"):
            trail.audited(spark, "chain", after="chain")
    second = trail.audited(spark, "chain", after="chain")
    whole = trail.audited(spark, "whole")

    assert [one.violations for one in (first, second, whole)] == [0, 0, 0]
    assert starts(second) == nexts(first)
    assert trail.verdicts(spark, "chain") == trail.verdicts(spark, "whole")
    assert second.verdicts["pending"] == whole.verdicts["pending"] >= len(WAITING)
    ended = {name: n for name, n in whole.verdicts.items() if name != "pending"}
    both = {name: first.verdicts[name] + second.verdicts[name] for name in ended}
    assert ended == both


def starts(summary: Summary) -> list[int]:
    return [one.start for one in summary.audited.ranges]


def nexts(summary: Summary) -> list[int]:
    return [one.next_offset for one in summary.audited.ranges]


def test_second_end_of_what_an_earlier_audit_closed_is_found_and_nothing_else(
    spark: SparkSession, trail: Trail
) -> None:
    """The third audit in another place finds it. Pending records came through the two before it and
    are not read again."""
    with CommittedReader(trail.made.bootstrap) as reader:
        arrived = list(reader.read([trail.orders]))
    twice = next(one.record for one in arrived if one.record.value == b"plain-3")
    append(trail.made.bootstrap, trail.orders, [twice])
    summary = trail.audited(spark, "after", after="chain")
    assert summary.violations_by == {"duplicated": 1}
    second = json.loads((trail.folder / "chain" / "summary.json").read_text())
    assert starts(summary) == [one["next_offset"] for one in second["ranges"]]
    assert summary.verdicts["pending"] == second["verdicts"]["pending"]
    rows = verdicts_in(spark, trail.folder / "after").collect()
    assert [(row.offset, row.verdict) for row in rows if row.verdict != "pending"] == [
        (4, "duplicated")
    ]
    assert len(rows) < summary.verdicts["pending"]
    assert "an earlier audit" in next(row.detail for row in rows if row.is_violation)


def test_audit_is_made_again_from_its_evidence_with_identical_verdicts(
    spark: SparkSession, trail: Trail
) -> None:
    """The topics have changed since: there is a second delivery. Both the chain's last audit and
    the full one are repeated."""
    for name, after in (("chain", "chain"), ("whole", None)):
        text = (trail.folder / name / "repeat.json").read_text()
        evidence = read_repeat_inputs(text)
        trail.audited(spark, f"{name} again", after, Selection(evidence.at_ms), evidence)
        assert trail.verdicts(spark, f"{name} again").items() <= trail.verdicts(spark, name).items()
        assert "secret" not in text
    fewer = {**evidence.tables, "verdicts": TableHash(5, "7")}
    with pytest.raises(ResultsRefused, match="has another result: verdicts had 5 rows"):
        trail.audited(
            spark, "other", None, Selection(evidence.at_ms), replace(evidence, tables=fewer)
        )
    gone = replace(evidence, taken=replace(evidence.taken, topic_id="another"))
    with pytest.raises(NotOurs, match="created anew since that audit"):
        trail.audited(spark, "other", None, Selection(evidence.at_ms), gone)
    for broken in ("", "{}", text.replace('"version": 2', '"version": 7')):
        with pytest.raises(ResultsRefused, match="not the repeat.json of an audit"):
            read_repeat_inputs(broken)


def test_audit_of_a_time_in_which_nothing_was_written_holds(
    spark: SparkSession, trail: Trail
) -> None:
    now = Selection(since_ms=time.time_ns() // 1_000_000)
    summary = trail.audited(spark, "quiet", selection=now)
    assert (summary.violations, sum(summary.verdicts.values())) == (0, 0)
    assert (trail.folder / "quiet" / "report.html").exists()


def test_audit_of_one_offset_judges_that_record_alone(spark: SparkSession, trail: Trail) -> None:
    summary = trail.audited(spark, "one", selection=Selection(offsets={0: (4, 5)}))
    assert (summary.violations_by, sum(summary.verdicts.values())) == ({"duplicated": 1}, 1)
    assert trail.verdicts(spark, "one") == {4: "duplicated"}


def test_audit_of_something_else_or_of_a_part_cannot_be_continued(
    spark: SparkSession, trail: Trail
) -> None:
    with pytest.raises(ResultsRefused, match="there is none"):
        trail.audited(spark, "next", after="never made")
    with pytest.raises(ResultsRefused, match="--since, --until or --offsets limited it"):
        trail.audited(spark, "next", after="one")
    history = History(spark, location(trail.folder / "whole"))
    (row,) = history.audits.collect()
    others = row.read.replace(".proxy", ".others")
    for read, error, says in (
        (others, NotOurs, "was of the group"),
        ("{", ResultsRefused, "cannot be read"),
    ):
        history.add({**row.asDict(), "audit": new_name(), "read": read})
        with pytest.raises(error, match=says):
            trail.audited(spark, "next", after="whole")
    assert History(spark, location(trail.folder / "next")).audits.isEmpty()
