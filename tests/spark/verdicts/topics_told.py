"""Topic contents of a story, and the audit's verdicts on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.audit_scope import AuditScope, OverdueRules, Unseen
from spark_jobs.histories.ends import CHECK_BACKS, ENDS, REQUESTS, all_of, record_histories
from spark_jobs.histories.reader import PARTITION_STATE
from spark_jobs.kafka.snapshot import OwnTopics
from spark_jobs.runtime.frames import location, materialising
from spark_jobs.verdicts.evaluation import Scoped, evaluate, in_scope
from tests.support.frames import frame_of

T_MS = 100_000
NEXT_OFFSET = 1_000
READ_TO = 2_000
STATE = (5, 5, READ_TO, READ_TO)
"""PARTITION_STATE of each partition, from `closed_to` to `read_to`."""
NO_RULES = OverdueRules(0, ())
SEEN = AuditScope(
    200_000,
    OwnTopics(dead_letters="letters", outcomes="outcomes"),
    {"orders": 3, "outcomes": 1},
    {("old", 0): Unseen(60_000, "old is gone"), ("letters", 0): Unseen(45_000, "letters are gone")},
    NO_RULES,
)
OUTCOMES_GONE = {("outcomes", 0): Unseen(45_000, "outcomes are gone")}
CONTENT = {"key_hash": 1, "value_hash": 2, "headers_hash": 3, "letter_hash": 4}


Found = dict[tuple[int | None, int | None], tuple[str, str]]


class Topics:
    """A story's contents of the topics, in one ingress partition, and its expected verdicts."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.asked: list[dict[str, Any]] = []
        self.ends: list[dict[str, Any]] = []
        self.checks: list[dict[str, Any]] = []
        self.expected: dict[int | None, tuple[str, str]] = {}
        self.read_from, self.log_end, self.cursor = 5, READ_TO, 2**63 - 1
        self.settings_from = 0
        self.next_offset = 10

    def record(
        self, expected: str, detail: str = "", *, kind: str | None = "record", **other: Any
    ) -> int:
        offset = other.pop("offset", None) or self.next_offset
        self.next_offset += 1
        due_ms = other.pop("due_ms", 50_000)
        timed = {"due_ms": due_ms, "wanted_ms": due_ms, "fires_ms": due_ms}
        plain = {
            "partition": self.partition,
            "offset": offset,
            "timestamp_ms": 40_000,
            "kind": kind,
        }
        if kind in {"record", "prepare"}:
            plain |= {**timed, "target": "orders", "key_number": 4}
        self.asked.append({**plain, **CONTENT, **other})
        self.expected[offset] = (expected, detail)
        return offset

    def origin(self, offset: int) -> str:
        return f"timer.ingress/{self.partition}/{offset}"

    def delivered(self, offset: int | None, **other: Any) -> None:
        at = {"topic": "orders", "at_partition": 1, "at_offset": offset, "at_ms": 50_004}
        stamped = {"due_ms": 50_000, "stamps": "timer-origin,timer-due"}
        self._end(offset, "delivered", **{**at, **stamped, **CONTENT, **other})

    def outcome(self, offset: int, end: str, **other: Any) -> None:
        at = {"topic": "outcomes", "at_partition": 0, "at_offset": 5, "at_ms": 50_004}
        asked = next(row for row in self.asked if row["offset"] == offset)
        told = {name: asked.get(name) for name in ("due_ms", "ident")}
        self._end(offset, end, **{**at, **told, "detail": "", **other})

    def letter(self, offset: int, code: str | None, **other: Any) -> None:
        at = {"topic": "letters", "at_partition": 0, "at_offset": 5, "at_ms": 50_004}
        self._end(offset, "dead-letter", **{**at, "code": code, **CONTENT, **other})

    def _end(self, offset: int | None, end: str, **other: Any) -> None:
        partition = None if offset is None else self.partition
        self.ends.append({"partition": partition, "offset": offset, "end": end, **other})

    def check_back(self, ident: bytes, number: int, at_ms: int, **other: Any) -> None:
        told = {"topic": "checks", "ident": ident, "number": number, "at_ms": at_ms, **CONTENT}
        stamps = "timer-transaction,timer-id,timer-check"
        self.checks.append({**told, "stamps": stamps, **other})

    @property
    def state(self) -> tuple[int, ...]:
        stands = (5, self.log_end, NEXT_OFFSET, T_MS, self.cursor)
        known_from = max(self.read_from, self.settings_from)
        return self.partition, self.read_from, *STATE, *stands, known_from, self.read_from

    def holds(self, partition: int | None, offset: int | None) -> bool:
        """Return whether a verdict is of this story. Without a place it belongs to the only story
        that expects it."""
        return partition == self.partition or (partition is None and offset in self.expected)


def judged(
    spark: SparkSession, folder: Path, groups: Sequence[tuple[AuditScope, Sequence[Topics]]]
) -> Found:
    """Judge all stories at once, each in the scope of its group.

    This takes no longer than one story.
    """
    told = [one for _, group in groups for one in group]
    requests = frame_of(spark, [row for one in told for row in one.asked], REQUESTS)
    ends = frame_of(spark, [row for one in told for row in one.ends], ENDS)
    histories = record_histories(requests, all_of(ends))
    scopes = [
        in_scope(_partitions(spark, group), scope, number)
        for number, (scope, group) in enumerate(groups)
    ]
    partitions = all_of(*(one.partitions for one in scopes))
    targets = all_of(*(one.targets for one in scopes))
    with materialising(spark, location(folder)) as materialise:
        scoped = Scoped(materialise(partitions), materialise(targets))
        asked = frame_of(spark, [row for one in told for row in one.checks], CHECK_BACKS)
        found_by = evaluate(histories, scoped, materialise, lambda _topics: asked)
        rows = found_by.verdicts.collect()
    found = {(row.partition, row.offset): (row.verdict, row.detail or "") for row in rows}
    assert len(found) == len(rows)
    return found


def _partitions(spark: SparkSession, told: Sequence[Topics]) -> DataFrame:
    states = [dict(zip(PARTITION_STATE, one.state, strict=True)) for one in told]
    return frame_of(spark, states, PARTITION_STATE)


Story = Callable[[Topics], None]
