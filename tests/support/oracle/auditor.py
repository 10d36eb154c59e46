"""Spark audit as a second judge. It shares no code with the first judge, `conservation`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Protocol

from pyspark.sql import SparkSession

from spark_jobs.audit_delivery import audit
from spark_jobs.histories.job import AuditJob
from spark_jobs.kafka.broker import kafka_settings
from spark_jobs.kafka.snapshot import OwnTopics, Selection
from spark_jobs.results.summary import Summary
from spark_jobs.runtime.frames import location
from tests.support.audit_results import violations_in
from tests.support.installation.installation import Installation

SHOWN = 10


class Counted(Protocol):
    @property
    def counts(self) -> Counter[str]: ...


class Auditor:
    """Audits in one session. `folder` keeps the last results."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark, self.results = spark, location(folder / "audit")

    def audit(self, made: Installation) -> Summary:
        own = OwnTopics(made.ingress, made.dead_letters, made.outcomes, f"{made.name}.settings")
        kafka = kafka_settings(made.bootstrap)
        job = AuditJob(kafka, f"{made.name}.proxy", own, (), self.results)
        return audit(self._spark, job, Selection())

    def confirm(self, made: Installation, ends: Counted) -> None:
        """Fail unless the audit finds no violation and the same counts as `ends`."""
        found = self.audit(made)
        assert not found.violations, f"{found.violations_by}, the first:\n{self._violations()}"
        counts = {name.replace("_", "-"): n for name, n in found.verdicts.items() if n}
        assert counts == ends.counts, "the audit counts otherwise"

    def _violations(self) -> str:
        table = violations_in(self._spark, self.results)
        rows = table.orderBy("partition", "offset").drop("look").limit(SHOWN).collect()
        return "\n".join(str(row.asDict()) for row in rows)
