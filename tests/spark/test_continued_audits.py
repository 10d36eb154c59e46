"""Audits that go on from one another find what one audit of everything finds, and read each record
once."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession

from spark_jobs.audit_delivery import audit
from spark_jobs.evidence.audit_job import AuditJob, Selection
from spark_jobs.kafka.kafka_settings import kafka_settings
from spark_jobs.kafka.snapshot import OwnTopics
from spark_jobs.results.open_folder import OPEN
from spark_jobs.results.result_tables import read_verdicts
from spark_jobs.results.summary import Summary
from spark_jobs.runtime.errors import NotOurs, ResultsRefused
from tests.support.installation.installation import Installation
from tests.support.installation.proxy_process import ProxyProcess
from tests.support.installation.topic_copies import append
from tests.support.oracle.committed_reader import CommittedReader
from tests.support.records import Outgoing

pytestmark = pytest.mark.integration

ENDED_WITHIN_S = 180
WAITING = ("waiting-0", "waiting-1", "waiting-2", "undecided")
FAR = ("timer-delay", b"1h")
Header = tuple[str, bytes]


class Trail(NamedTuple):
    """A proxy at work, and the folder where one audit after the other leaves its results."""

    made: Installation
    proxy: ProxyProcess
    orders: str
    folder: Path

    def send(self, *records: tuple[str, tuple[Header, ...]]) -> None:
        """Write records whose value is their name, all into one partition."""
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
    ) -> Summary:
        """The audit of this name, gone on from the one called `after`."""
        made = self.made
        own = OwnTopics(made.ingress, made.dead_letters, made.outcomes, f"{made.name}.settings")
        kafka = kafka_settings(made.bootstrap)
        earlier = self.folder / after if after else None
        job = AuditJob(kafka, f"{made.name}.proxy", own, (), self.folder / name, earlier)
        return audit(spark, job, selection or Selection())

    def verdicts(self, spark: SparkSession, *names: str) -> dict[int, str]:
        """By offset, what these audits found; the last word counts."""
        found: dict[int, str] = {}
        for name in names:
            rows = read_verdicts(spark, self.folder / name).collect()
            found |= {row.offset: row.verdict for row in rows}
        return found

    def pending(self, spark: SparkSession, name: str) -> set[int]:
        """What this audit found waiting: something of everything that was to wait."""
        found = {at for at, verdict in self.verdicts(spark, name).items() if verdict == "pending"}
        assert len(found) >= len(WAITING)
        return found


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
    """Records whose ends other records bring, or time, and some that end at once."""
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
    first = trail.audited(spark, "first")
    trail.send(*decisions())
    trail.made.await_ends(1 + len(beginnings()) + len(decisions()) - len(WAITING), ENDED_WITHIN_S)
    assert trail.proxy.stop() == 0
    second = trail.audited(spark, "second", after="first")
    whole = trail.audited(spark, "whole")

    assert [one.violations for one in (first, second, whole)] == [0, 0, 0]
    assert starts(second) == nexts(first)
    found = trail.verdicts(spark, "first", "second")
    assert found == trail.verdicts(spark, "whole")
    closed = sum(n for verdict, n in first.verdicts.items() if verdict != "pending")
    assert closed + sum(second.verdicts.values()) == len(found)


def starts(summary: Summary) -> list[int]:
    return [one.start for one in summary.audited.ranges]


def nexts(summary: Summary) -> list[int]:
    return [one.next_offset for one in summary.audited.ranges]


def test_second_end_of_what_an_earlier_audit_closed_is_found_and_nothing_else(
    spark: SparkSession, trail: Trail
) -> None:
    """By the third audit in a row: what still waits has come through the two before it."""
    with CommittedReader(trail.made.bootstrap) as reader:
        arrived = list(reader.read([trail.orders]))
    twice = next(one.record for one in arrived if one.record.value == b"plain-3")
    append(trail.made.bootstrap, trail.orders, [twice])
    summary = trail.audited(spark, "after", after="second")
    assert summary.violations_by == {"duplicated": 1}
    second = json.loads((trail.folder / "second" / "summary.json").read_text())
    assert starts(summary) == [one["next_offset"] for one in second["ranges"]]
    assert trail.pending(spark, "after") == trail.pending(spark, "second")
    rows = read_verdicts(spark, trail.folder / "after").where("is_violation").collect()
    assert [row.offset for row in rows] == [4]
    assert "an earlier audit" in rows[0].detail


def test_audit_of_a_time_in_which_nothing_was_written_holds(
    spark: SparkSession, trail: Trail
) -> None:
    """While the second delivery of an older record stands in the target."""
    now = Selection(since_ms=time.time_ns() // 1_000_000)
    summary = trail.audited(spark, "quiet", selection=now)
    assert (summary.violations, sum(summary.verdicts.values())) == (0, 0)
    assert (trail.folder / "quiet" / "report.html").exists()


def test_audit_of_one_offset_judges_that_record_alone(spark: SparkSession, trail: Trail) -> None:
    """The one that was delivered a second time."""
    summary = trail.audited(spark, "one", selection=Selection(offsets={0: (4, 5)}))
    assert (summary.violations_by, sum(summary.verdicts.values())) == ({"duplicated": 1}, 1)
    assert trail.verdicts(spark, "one") == {4: "duplicated"}


def test_audit_of_something_else_or_of_a_part_cannot_be_continued(
    spark: SparkSession, trail: Trail
) -> None:
    with pytest.raises(ResultsRefused, match="does not hold"):
        trail.audited(spark, "next", after="never made")
    shutil.copytree(trail.folder / "whole", trail.folder / "copied")
    positions = trail.folder / "copied" / OPEN / "positions.json"
    said = positions.read_text()
    positions.write_text(said.replace(".proxy", ".others"))
    with pytest.raises(NotOurs, match="was of the group"):
        trail.audited(spark, "next", after="copied")
    positions.write_text("{")
    with pytest.raises(ResultsRefused, match="cannot be read"):
        trail.audited(spark, "next", after="copied")
    positions.unlink()
    with pytest.raises(ResultsRefused, match="--since, --until or --offsets limited it"):
        trail.audited(spark, "next", after="copied")
    assert not (trail.folder / "next").exists()
