"""Time spent by each query of an audit, read from Spark's event log."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.table import Table

ONE_FILE: Final = "local-*"
SQL: Final = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecution"
EXECUTION: Final = "spark.sql.execution.id"
WRITES: Final = re.compile(
    r"InsertIntoHadoopFsRelationCommand\s*\nInput.*\nArguments: file:(\S+?),"
)
LAST_PARTS: Final = 2


@dataclass(slots=True)
class Query:
    began_ms: int
    writes: str
    ended_ms: int = 0
    jobs: int = 0
    tasks: int = 0
    run_ms: int = 0
    cpu_ms: int = 0


@dataclass(slots=True)
class EventLog:
    began_ms: int = 0
    ended_ms: int = 0
    queries: dict[int, Query] = field(default_factory=dict)
    of_stage: dict[int, int] = field(default_factory=dict)

    @classmethod
    def newest(cls, folder: Path, count: int) -> "list[EventLog]":
        found = sorted(folder.glob(ONE_FILE), key=lambda path: path.stat().st_mtime)
        return [cls.read(path) for path in found[-count:]]

    @classmethod
    def read(cls, file: Path) -> "EventLog":
        log = cls()
        with file.open(encoding="utf-8") as lines:
            for line in lines:
                log.add(json.loads(line))
        return log

    def add(self, event: Mapping[str, Any]) -> None:
        match event["Event"]:
            case "SparkListenerApplicationStart":
                self.began_ms = event["Timestamp"]
            case "SparkListenerApplicationEnd":
                self.ended_ms = event["Timestamp"]
            case name if name == f"{SQL}Start":
                self._start(event)
            case name if name == f"{SQL}End":
                self.queries[event["executionId"]].ended_ms = event["time"]
            case "SparkListenerJobStart":
                self._job(event)
            case "SparkListenerTaskEnd":
                self._task(event)

    def table(self) -> Table:
        """Return the times of all queries. The column `driver s` is the time since the previous
        query ended."""
        table = Table("wrote", title="Queries of the audit")
        for column in ("at s", "driver s", "took s", "tasks ran s", "CPU s", "jobs", "tasks"):
            table.add_column(column, justify="right")
        for cells in self._rows():
            table.add_row(*cells)
        return table

    def _rows(self) -> Iterator[list[str]]:
        before_ms = self.began_ms
        for one in sorted(self.queries.values(), key=lambda query: query.began_ms):
            times_ms = (
                one.began_ms - self.began_ms,
                one.began_ms - before_ms,
                one.ended_ms - one.began_ms,
                one.run_ms,
                one.cpu_ms,
            )
            seconds = [f"{time_ms / 1_000:.1f}" for time_ms in times_ms]
            yield [one.writes, *seconds, str(one.jobs), str(one.tasks)]
            before_ms = max(before_ms, one.ended_ms)
        yield ["end", f"{(self.ended_ms - self.began_ms) / 1_000:.1f}"]

    def _start(self, event: Mapping[str, Any]) -> None:
        written = WRITES.search(event["physicalPlanDescription"])
        place = "/".join(written[1].split("/")[-LAST_PARTS:]) if written else "(collected)"
        self.queries[event["executionId"]] = Query(event["time"], place)

    def _job(self, event: Mapping[str, Any]) -> None:
        number = event.get("Properties", {}).get(EXECUTION)
        if number is not None and int(number) in self.queries:
            query = self.queries[int(number)]
            query.jobs += 1
            self.of_stage |= dict.fromkeys(event["Stage IDs"], int(number))

    def _task(self, event: Mapping[str, Any]) -> None:
        number, metrics = self.of_stage.get(event["Stage ID"]), event.get("Task Metrics")
        if number is not None and metrics:
            query = self.queries[number]
            query.tasks += 1
            query.run_ms += metrics["Executor Run Time"]
            query.cpu_ms += metrics["Executor CPU Time"] // 1_000_000
