"""The audit: a verdict for each ingress record, from the topics alone.

`python -m spark_jobs.audit_delivery --help`, `kafka-delay-proxy audit`, or `spark-submit`.
Exit code 0: no violation; 2: violations; 1: the audit could not be made.
"""

from __future__ import annotations

from pyspark import StorageLevel
from pyspark.sql import DataFrame

from spark_jobs.facts import facts, nowhere
from spark_jobs.inputs import Inputs
from spark_jobs.judgement import judged, orphans
from spark_jobs.results import Unverifiable


def verdicts(inputs: Inputs) -> DataFrame:
    """VERDICTS of all that was read."""
    found = facts(inputs.asked, inputs.ends).persist(StorageLevel.DISK_ONLY)
    return judged(found, inputs.standings, inputs.seen).unionByName(orphans(nowhere(inputs.ends)))


def unverifiable(inputs: Inputs) -> list[Unverifiable]:
    """Ranges of the ingress that retention has deleted."""
    why = "retention has deleted these records from the ingress"
    return [
        Unverifiable(one.partition, 0, one.start, why)
        for one in inputs.snapshot.ingress
        if one.start > 0
    ]
