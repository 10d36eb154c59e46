"""Topics of many runs together, as the data frames and positions that an audit reads."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.audit_scope import AuditScope, OverdueRules, Unseen, overdue_rules
from spark_jobs.kafka.broker import Place
from spark_jobs.kafka.snapshot import (
    Committed,
    IngressPosition,
    OverdueText,
    PolicyFrom,
    Snapshot,
    with_earlier_policies,
)
from spark_jobs.kafka.sources import RECORDS
from spark_jobs.records.hashes import HopKeys
from spark_jobs.requests.policies import InForce, least_attempts
from spark_jobs.runtime.frames import columns_of, location
from tests.support.simulation.manual_clock import START_MS
from tools.campaign.contents import Contents, Held
from tools.campaign.scene import (
    HOP_KEY,
    LIMITS,
    MOMENTS_MS,
    OVERDUE,
    OWN,
    TOPIC_ID,
)

HELD: Final = {**RECORDS, "since": "int"}
HOP_KEYS: Final = HopKeys(TOPIC_ID, {HOP_KEY.digest: HOP_KEY.secret})
FILES: Final = 4
"""Number of files. Spark's tasks can read them in parallel."""


@dataclass(frozen=True, slots=True)
class Laid:
    """Topics of many runs together. The column `since` of the frames is the first moment at which a
    record exists. `unseen` lists partitions that the audit does not see in full."""

    ingress: DataFrame
    others: DataFrame
    runs: Sequence[Contents]
    unseen: Mapping[Place, Unseen]

    def committed(self, moment: int) -> tuple[Committed, ...]:
        found = [one for run in self.runs for one in run.moments[moment].committed.values()]
        served = {
            number: tuple(PolicyFrom(*one) for one in policies)
            for run in self.runs
            for number, policies in run.moments[moment].served.items()
        }
        return with_earlier_policies(found, served)

    @property
    def policies(self) -> dict[str, str]:
        return {digest: text for run in self.runs for digest, text in run.policies.items()}

    def in_force(self, moment: int) -> list[InForce]:
        return [
            InForce(one.partition, *policy)
            for one in self.committed(moment)
            for policy in one.policies
        ]

    def snapshot(self, moment: int) -> Snapshot:
        ends = {p: end for run in self.runs for p, end in run.moments[moment].log_ends.items()}
        starts = {p: start for run in self.runs for p, start in run.log_starts.items()}
        read_to = {p: end for run in self.runs for p, end in run.read_to.items()}
        positions = [
            IngressPosition(one, start, end, start, end, ends[one.partition])
            for one in self.committed(moment)
            for start in (starts.get(one.partition, 0),)
            for end in (read_to.get(one.partition, ends[one.partition]),)
        ]
        at_ms = MOMENTS_MS[moment]
        return Snapshot(OWN.ingress, TOPIC_ID, tuple(positions), (), {}, {}, at_ms)

    def scope(self, moment: int, *, settled_only: bool = False) -> AuditScope:
        at_ms = MOMENTS_MS[moment]
        counts = {topic: n for run in self.runs for topic, n in run.partition_counts.items()}
        return AuditScope(
            at_ms,
            OWN,
            counts,
            self.unseen,
            _rules(),
            LIMITS,
            at_ms,
            None if settled_only else at_ms,
            least_attempts(self.policies),
            settled_only=settled_only,
        )


def laid_out(
    spark: SparkSession,
    runs: Sequence[Contents],
    folder: Path,
    unseen: Mapping[Place, Unseen] | None = None,
) -> Laid:
    ingress = [one for run in runs for one in run.ingress]
    others = [one for run in runs for one in run.others]
    return Laid(
        _frame(spark, ingress, folder / "ingress"),
        _frame(spark, others, folder / "others"),
        runs,
        unseen or {},
    )


def _frame(spark: SparkSession, records: Sequence[Held], folder: Path) -> DataFrame:
    folder.mkdir(parents=True)
    for number in range(FILES):
        lines = (json.dumps(_row(one)) for one in records[number::FILES])
        (folder / f"{number}.json").write_text("\n".join(lines), "utf-8")
    return spark.read.schema(columns_of(HELD)).json(location(folder).uri)


def _row(one: Held) -> dict[str, Any]:
    return {
        "topic": one.topic,
        "partition": one.partition,
        "offset": one.offset,
        "timestamp_ms": one.timestamp_ms,
        "key": _told(one.key),
        "value": _told(one.value),
        "headers": _headers(one.headers),
        "is_attested": True,
        "since": one.since,
    }


def _headers(headers: Iterable[tuple[str, bytes | None]]) -> list[dict[str, str | None]]:
    return [{"key": name, "value": _told(value)} for name, value in headers]


def _told(content: bytes | None) -> str | None:
    return None if content is None else b64encode(content).decode()


def _rules() -> OverdueRules | None:
    text = json.dumps([one._asdict() for one in OVERDUE])
    return overdue_rules([OverdueText(START_MS, text)])
