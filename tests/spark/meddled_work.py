"""The work of a real proxy, and lies planted in its topics."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from spark_jobs.audit_delivery import audit
from spark_jobs.histories.job import AuditJob
from spark_jobs.kafka.broker import kafka_settings
from spark_jobs.kafka.snapshot import OwnTopics, Selection
from spark_jobs.results.summary import Summary
from spark_jobs.runtime.frames import location
from tests.support.audit_results import verdicts_in
from tests.support.installation.installation import Installation
from tests.support.installation.topic_copies import TopicCopy, with_header
from tests.support.records import Headers, Incoming, Outgoing

PLAIN = 1_000
WITHIN_S = 180
HOUR_MS = 3_600_000
CHECKS = {"immunity": "1s", "check_interval": "1s", "max_checks": 2}


class Work(NamedTuple):
    """Finished work of a proxy: installation, target, place of each record by value, and original
    contents of the end topics."""

    made: Installation
    orders: str
    places: dict[str, Incoming]
    held: tuple[TopicCopy, ...]

    def restored(self) -> Work:
        for copy in self.held:
            copy.rewrite()
        return self

    def origin(self, name: str) -> str:
        one = self.places[name]
        return f"{self.made.ingress}/{one.partition}/{one.offset}"

    @property
    def soon_ms(self) -> int:
        return self.places["to nowhere"].timestamp_ms + 30_000

    def audited(
        self, spark: SparkSession, folder: Path, name: str = "audit", **more: Any
    ) -> Summary:
        made = self.made
        own = OwnTopics(made.ingress, made.dead_letters, made.outcomes, f"{made.name}.settings")
        at_ms = more.pop("at_ms", None)
        job = AuditJob(
            kafka_settings(made.bootstrap),
            f"{made.name}.proxy",
            own,
            more.pop("targets", ()),
            location(folder / name),
            **more,
        )
        return audit(spark, job, Selection(at_ms))

    def found(self, spark: SparkSession, folder: Path) -> dict[str, tuple[str, str]]:
        rows = verdicts_in(spark, folder / "audit").where("is_violation").collect()
        names = {one.offset: name for name, one in self.places.items()}
        return {names.get(row.offset, row.offset): (row.verdict, row.detail) for row in rows}


def written(orders: str, dropped: str, checks: str, due_ms: int) -> list[Outgoing]:
    to, far = ("timer-topic", orders.encode()), ("timer-delay", b"1h")

    def named(name: str, *headers: tuple[str, bytes | None], key: bytes = b"k") -> Outgoing:
        return Outgoing(key, name.encode(), headers, 0)

    def plain(n: int) -> Outgoing:
        return named(f"p-{n}", to, ("timer-delay", b"%dms" % (n * 8)), key=b"k%0300d" % n)

    return [
        *map(plain, range(PLAIN)),
        *[named(f"same-{n}", to, ("timer-deliver-at", b"%d" % due_ms)) for n in range(4)],
        named("taken", to, far, ("timer-id", b"t")),
        named("cancel", ("timer-cancel", b"t")),
        named("old", to, far, ("timer-id", b"o")),
        named("newer", to, ("timer-delay", b"2h"), ("timer-id", b"o")),
        named("last", to, ("timer-delay", b"9s")),
        named("waiting", to, far),
        named("waiting too", to, far),
        named("wrong", to, ("timer-delay", b"soon")),
        named(
            "asked",
            to,
            ("timer-transaction", b"prepare"),
            ("timer-id", b"h"),
            ("timer-check-topic", checks.encode()),
        ),
        named("dropped", ("timer-topic", dropped.encode()), ("timer-deliver-at", b"1000")),
        named("to nowhere", ("timer-topic", b"nowhere-at-all")),
        *[named(f"refused-{n}", to) for n in range(4)],
    ]


def at(copy: TopicCopy, name: str) -> int:
    return copy.of_value(name.encode())


def outcome_at(copy: TopicCopy, origin: str) -> int:
    (found,) = [n for n, one in enumerate(copy.records) if one.key == origin.encode()]
    return found


def rewritten_outcome(before: Incoming, **fields: Any) -> bytes:
    return json.dumps({**json.loads(before.value or b"{}"), **fields}).encode()


def deliver_when_due(work: Work, orders: TopicCopy, name: str) -> None:
    model = orders.records[at(orders, "last")]
    due = b"%d" % (work.places[name].timestamp_ms + HOUR_MS)
    headers = with_header(model.headers, "timer-origin", work.origin(name).encode())
    told = with_header(headers, "timer-due", due)
    orders.records.append(replace(model, value=name.encode(), headers=told, timestamp_ms=int(due)))


def plant_ignored(work: Work, orders: TopicCopy, outcomes: TopicCopy) -> dict[str, str]:
    for name in ("taken", "old"):
        deliver_when_due(work, orders, name)
        del outcomes.records[outcome_at(outcomes, work.origin(name))]
    said = outcome_at(outcomes, work.origin("cancel"))
    missed = rewritten_outcome(outcomes.records[said], outcome="missed")
    outcomes.change(said, value=missed)
    return {"taken": "early", "cancel": "contradicted", "old": "early"}


def plant_excuses(
    work: Work, orders: TopicCopy, outcomes: TopicCopy, letters: TopicCopy
) -> dict[str, str]:
    letter = letters.records[at(letters, "wrong")]
    told = outcomes.records[outcome_at(outcomes, work.origin("wrong"))]
    amid_ms = orders.records[at(orders, "p-500")].timestamp_ms
    reasons = {"body-gone": "x", "target-unknown": "x", "too-large": "x"}
    for number, code in enumerate(reasons):
        name = f"refused-{number}"
        origin, one = work.origin(name), work.places[name]
        del orders.records[at(orders, name)]
        why: Headers = [
            *one.headers,
            ("timer-error", code.encode()),
            ("timer-error-detail", b"so it is said"),
            ("timer-origin", origin.encode()),
        ]
        letters.records.append(
            replace(letter, key=one.key, value=one.value, headers=why, timestamp_ms=amid_ms)
        )
        ended = rewritten_outcome(
            told, origin=origin, due=one.timestamp_ms, detail=f"{code}: so it is said"
        )
        outcomes.records.append(replace(told, key=origin.encode(), value=ended))
    del orders.records[at(orders, "refused-3")]
    origin = work.origin("refused-3")
    said = "90000 ms overdue; orders* allows 60000 (release.overdue)"
    ended = rewritten_outcome(
        told,
        origin=origin,
        outcome="expired",
        due=work.places["refused-3"].timestamp_ms,
        detail=said,
    )
    outcomes.records.append(replace(told, key=origin.encode(), value=ended))
    return {f"refused-{number}": "contradicted" for number in range(4)}


def plant_false_burials(
    work: Work, orders: TopicCopy, outcomes: TopicCopy, letters: TopicCopy
) -> set[str | int]:
    letter = letters.records[at(letters, "wrong")]
    told = outcomes.records[outcome_at(outcomes, work.origin("wrong"))]

    def bury(origin: str, asked: Incoming, why: str, at_ms: int) -> None:
        code, _, detail = why.partition(": ")
        headers: Headers = [
            *asked.headers,
            ("timer-error", code.encode()),
            ("timer-error-detail", detail.encode()),
            ("timer-origin", origin.encode()),
        ]
        buried = replace(letter, key=asked.key, value=asked.value, headers=headers)
        letters.records.append(replace(buried, timestamp_ms=at_ms))
        ended = rewritten_outcome(told, origin=origin, detail=why)
        outcomes.records.append(replace(told, key=origin.encode(), value=ended, timestamp_ms=at_ms))

    expiry = next(one for one in outcomes.records if _applied_to(one, b"h"))
    outcomes.records.remove(expiry)
    told_of = (expiry.key or b"").decode()
    bury(told_of, work.places["asked"], "publish-failed: so it is said", expiry.timestamp_ms)
    said = outcome_at(outcomes, work.origin("cancel"))
    outcomes.change(said, value=rewritten_outcome(outcomes.records[said], outcome="missed"))
    del outcomes.records[outcome_at(outcomes, work.origin("taken"))]
    taken = work.places["taken"]
    due_ms = taken.timestamp_ms + HOUR_MS
    bury(work.origin("taken"), taken, "publish-failed: so it is said", due_ms)
    return {"cancel", int(told_of.rpartition("/")[2])}


def _applied_to(outcome: Incoming, ident: bytes) -> bool:
    told = json.loads(outcome.value or b"{}")
    return (told["outcome"], told["id"]) == ("applied", ident.decode())


def plant_small_lies(orders: TopicCopy, outcomes: TopicCopy, work: Work) -> dict[str, str]:
    first, second = at(orders, "same-0"), at(orders, "same-1")
    orders.records[first], orders.records[second] = orders.records[second], orders.records[first]
    said = outcome_at(outcomes, work.origin("to nowhere"))
    outcomes.change(said, value=rewritten_outcome(outcomes.records[said], due=7))
    return {"same-1": "contradicted", "to nowhere": "altered"}
