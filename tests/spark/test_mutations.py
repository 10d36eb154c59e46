"""The audit finds and names every planted fault in the topics of a real run, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession

from tests.support.audit_results import verdicts_in
from tests.support.installation.installation import Installation
from tests.support.installation.topic_copies import TopicCopy, append, with_header
from tests.support.oracle.auditor import Auditor
from tests.support.oracle.committed_reader import CommittedReader
from tests.support.records import Incoming, Outgoing

pytestmark = [pytest.mark.integration, pytest.mark.core]

PLAIN = 20
ENDED_WITHIN_S = 180
GOOD = {
    "pending": "pending",
    "cancelled": "cancelled",
    "cancel": "applied",
    "cancel of nothing": "missed",
    "replaced": "replaced",
    "newer": "delivered",
    "half": "delivered",
    "commit": "applied",
    "undone": "rolled_back",
    "rollback": "applied",
    "undecided": "pending",
    "unreadable": "dead_lettered",
    "unreadable too": "dead_lettered",
    "failed": "delivered",
    "failed 16 times": "delivered",
    "to nowhere": "requeued",
    "goes on": "pending",
    **{f"plain-{n}": "delivered" for n in range(PLAIN)},
}
WAITING = sum(verdict == "pending" for verdict in GOOD.values())
FAULTS = {
    "plain-0": "missing",
    "plain-1": "duplicated",
    "plain-2": "early",
    "plain-3": "altered",
    "plain-4": "altered",
    "plain-5": "altered",
    "plain-6": "altered",
    "plain-7": "altered",
    "plain-8": "contradicted",
    "plain-9": "altered",
    "cancelled": "contradicted",
    "undone": "missing",
    "failed 16 times": "altered",
    "unreadable": "altered",
    "unreadable too": "contradicted",
    "half": "duplicated",
    "aborted": "orphaned",
}


class Run(NamedTuple):
    """Finished work of a proxy: installation, targets, and the place of each record."""

    made: Installation
    orders: str
    group: str
    places: dict[str, str]

    def audited(self, spark: SparkSession, auditor: Auditor) -> dict[str, str]:
        made = self.made
        auditor.audit(made)
        names = {place: name for name, place in self.places.items()}
        rows = verdicts_in(spark, auditor.results).collect()
        found = {f"{made.ingress}/{row.partition}/{row.offset}": row.verdict for row in rows}
        return {names.get(place, place): verdict for place, verdict in found.items()}


def written(orders: str, group: str) -> list[Outgoing]:
    to, far = ("timer-topic", orders.encode()), ("timer-delay", b"1h")
    failed = ("timer-retry-group", group.encode())

    def named(name: str, *headers: tuple[str, bytes | None]) -> Outgoing:
        return Outgoing(b"k" + name.encode(), name.encode(), headers, 0)

    def half(what: bytes, ident: bytes) -> tuple[tuple[str, bytes], ...]:
        return ("timer-transaction", what), ("timer-id", ident)

    return [
        *[
            named(f"plain-{n}", to, ("timer-delay", b"%dms" % (n * 20)), ("mine", b"x"))
            for n in range(PLAIN)
        ],
        named("pending", to, far),
        named("cancelled", to, far, ("timer-id", b"c")),
        named("cancel", ("timer-cancel", b"c")),
        named("cancel of nothing", ("timer-cancel", b"n")),
        named("replaced", to, far, ("timer-id", b"r")),
        named("newer", to, ("timer-id", b"r")),
        named("half", to, *half(b"prepare", b"h")),
        named("commit", *half(b"commit", b"h")),
        named("undone", to, *half(b"prepare", b"u")),
        named("rollback", *half(b"rollback", b"u")),
        named("undecided", to, *half(b"prepare", b"z")),
        named("unreadable", to, ("timer-delay", b"soon")),
        named("unreadable too", to, ("timer-level", b"x")),
        named("failed", failed, ("timer-delay", b"1ms")),
        named("failed 16 times", failed, ("timer-attempt", b"16")),
        named("to nowhere", ("timer-topic", b"nowhere-at-all"), ("timer-delay", b"1ms")),
    ]


@pytest.fixture(scope="module")
def run(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    made = Installation(kafka, tmp_path_factory.mktemp("mutations"), partitions=1)
    group = f"group-of-{made.name}"
    try:
        orders = made.target("orders", 2)
        made.named_target(f"retry.{group}")
        made.named_target(f"dlq.{group}")
        append(kafka, made.ingress, [Incoming(0, 0, None, b"aborted", [], 0)], aborted=True)
        records = written(orders, group)
        made.send(records)
        proxy = made.proxy()
        proxy.start()
        made.await_ingested()
        made.await_ends(len(GOOD) - WAITING, ENDED_WITHIN_S)
        assert proxy.stop() == 0, proxy.log_tail()
        yield Run(made, orders, group, {**places_of(made), "aborted": f"{made.ingress}/0/0"})
    finally:
        made.close()


def places_of(made: Installation) -> dict[str, str]:
    """Return the place of each record by value. Successors are named "goes on"."""
    with CommittedReader(made.bootstrap) as reader:
        found = list(reader.read([made.ingress]))
    return {
        "goes on" if one.record.header("timer-hop-from") else (one.record.value or b"").decode(): (
            one.place
        )
        for one in found
    }


@pytest.mark.usefixtures("compiled")
def test_every_planted_fault_is_named_and_nothing_else(
    spark: SparkSession, run: Run, auditor: Auditor
) -> None:
    meddle_with_targets(run)
    meddle_with_own_topics(run)
    expected = {**GOOD, **FAULTS, f"{run.made.ingress}/0/9999": "orphaned"}
    assert run.audited(spark, auditor) == expected


def meddle_with_targets(run: Run) -> None:
    orders = TopicCopy(run.made.bootstrap, run.orders)
    at = {(one.value or b"").decode(): number for number, one in enumerate(orders.records)}
    kept = [*orders.records]

    def said(name: str, header: str, value: bytes) -> None:
        headers = with_header(kept[at[name]].headers, header, value)
        orders.change(at[name], headers=headers)

    due_ms = int(kept[at["plain-2"]].header("timer-due") or b"")
    orders.change(at["plain-2"], timestamp_ms=due_ms - 1)
    orders.change(at["plain-3"], value=b"plain-three")
    orders.change(at["plain-4"], key=b"kplain-44")
    said("plain-5", "mine", b"y")
    orders.change(at["plain-6"], partition=1 - kept[at["plain-6"]].partition)
    said("plain-7", "timer-due", b"1")
    orders.change(at["plain-9"], headers=[h for h in kept[at["plain-9"]].headers if h[0] != "mine"])
    added = [kept[at["plain-1"]], kept[at["half"]]]
    for name, offset in (("cancelled", None), ("aborted", None), ("nobody", 9999)):
        place = run.places.get(name, f"{run.made.ingress}/0/{offset}")
        stray = kept[at["plain-10"]]
        added.append(
            replace(stray, headers=with_header(stray.headers, "timer-origin", place.encode()))
        )
    del orders.records[at["plain-0"]]
    orders.records += added
    orders.rewrite()
    append(run.made.bootstrap, run.orders, [kept[at["plain-11"]]], aborted=True)
    move_from_the_last_stop(run)


def move_from_the_last_stop(run: Run) -> None:
    dlq = TopicCopy(run.made.bootstrap, f"dlq.{run.group}")
    append(run.made.bootstrap, f"retry.{run.group}", dlq.records)
    dlq.records.clear()
    dlq.rewrite()


def meddle_with_own_topics(run: Run) -> None:
    letters = TopicCopy(run.made.bootstrap, run.made.dead_letters)
    letters.change(letters.of_value(b"unreadable"), key=b"other")
    del letters.records[letters.of_value(b"unreadable too")]
    letters.rewrite()
    outcomes = TopicCopy(run.made.bootstrap, run.made.outcomes)
    undone = run.places["undone"].encode()
    told = next(one for one in outcomes.records if one.key == undone)
    outcomes.records.remove(told)
    place = run.places["plain-8"].encode()
    false = (told.value or b"").replace(undone, place).replace(b"rolled-back", b"cancelled")
    outcomes.records.append(replace(told, key=place, value=false))
    outcomes.rewrite()
