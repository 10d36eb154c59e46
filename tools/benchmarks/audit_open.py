"""Cost of a continued audit if the earlier audit left many records open.

`python -m tools.benchmarks.audit_open [open] [new]` takes the number of open records and the number
of new records, for example 50000000 100000. The open records are written straight into the audit's
table of open records. Their dues spread over fifty days. Every tenth record has an id. Then new
records are written to the topics, and the audit is continued. This happens several times in one
Spark session, because `audit --follow` also keeps one session."""

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from proxy.embedded import EmbeddedBroker
from spark_jobs.audit_delivery import audit
from spark_jobs.histories.ends import REQUESTS
from spark_jobs.histories.job import AuditJob
from spark_jobs.histories.open_records import FOLDERS, OPEN, TABLE
from spark_jobs.kafka.broker import kafka_settings
from spark_jobs.kafka.snapshot import OwnTopics, Selection
from spark_jobs.results.summary import History, new_name
from spark_jobs.runtime.frames import conformed, location
from spark_jobs.runtime.session import job_session
from tools.benchmarks.audit_scale.mix import RECORDS
from tools.benchmarks.audit_scale.writing import PARTITIONS, Site, write

FULL: Final = (50_000_000, 100_000)
ROUNDS: Final = 3
FIRST_HUNDREDS: Final = 40
FIFTY_DAYS_MS: Final = 2**32
HOUR_MS: Final = 3_600_000
FILE_ROWS: Final = 500_000
VALUE_BYTES: Final = 200


def open_rows(spark: SparkSession, count: int, now_ms: int) -> DataFrame:
    """Return rows of the table OPEN: pending records. Their offsets are negative, so that no record
    of the topics has the same offset."""
    due_ms = f"{now_ms + HOUR_MS} + (xxhash64(id, 1) & {FIFTY_DAYS_MS - 1})"
    known = {
        "timestamp_ms": f"{now_ms} - id DIV 1000",
        "kind": "'record'",
        "ident": "ident",
        "target": "concat('target-', id % 10)",
        "key_number": f"xxhash64(id) & {2**31 - 1}",
        **dict.fromkeys(("due_ms", "wanted_ms", "fires_ms"), "due_ms"),
        "size_bytes": f"{VALUE_BYTES}L",
        "is_blurred": "false",
        **{name: f"xxhash64(id, '{name}')" for name in ("key_hash", "value_hash", "headers_hash")},
        "known_verdict": "'pending'",
        "known_ends": "0L",
    }
    fields = ", ".join(
        f"'{name}', CAST({known.get(name, 'NULL')} AS {kind})"
        for name, kind in REQUESTS.items()
        if name not in ("partition", "offset")
    )
    drawn = spark.range(0, count, 1, max(2, count // FILE_ROWS)).selectExpr(
        "*",
        f"CAST(id % {PARTITIONS} AS int) AS partition",
        f"-1 - id DIV {PARTITIONS} AS offset",
        f"{due_ms} AS due_ms",
        "IF(id % 10 = 0, CAST(concat('open-', id) AS binary), NULL) AS ident",
    )
    columns = {
        "review_ms": "due_ms",
        "has_id": "ident IS NOT NULL",
        "id_hash": "IF(ident IS NULL, NULL, xxhash64(partition, ident))",
        "request": f"named_struct({fields})",
        "ends": "array()",
    }
    found = conformed(drawn, OPEN, columns)
    files = max(2, count // FILE_ROWS)
    by_review = found.repartitionByRange(files, "has_id", "review_ms")
    return by_review.sortWithinPartitions("has_id", "review_ms")


def main(waiting: int, new: int) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="audit-") as made,
        EmbeddedBroker(data_dir=Path(made) / "broker", port=0) as broker,
        job_session("audit", "local[*]", "4g") as spark,
    ):
        site = Site.create(
            broker.bootstrap_servers, "audit", round(time.time() * 1_000), VALUE_BYTES
        )
        write(site, range(FIRST_HUNDREDS))
        place, topics = location(Path(made) / "audits"), site.topics
        kafka = kafka_settings(site.bootstrap)
        job = AuditJob(kafka, topics.group, OwnTopics(*topics.own), (), place)
        audit(spark, job, Selection())
        history = History(spark, place)
        history.tables.append(TABLE, open_rows(spark, waiting, site.times.watermark_ms), FOLDERS)
        _stands_at_the_newest(history)
        done = FIRST_HUNDREDS
        for _ in range(ROUNDS):
            write(site, range(done, done + new // RECORDS))
            done += new // RECORDS
            print(json.dumps(_gone_on(spark, job, Path(made) / "audits" / TABLE)), flush=True)


def _gone_on(spark: SparkSession, job: AuditJob, table: Path) -> dict[str, Any]:
    going_on = AuditJob(job.kafka, job.group, job.own, (), job.output, continue_from=job.output)
    before_bytes, began_s = _bytes(table), time.monotonic()
    found = audit(spark, going_on, Selection())
    took_s = time.monotonic() - began_s
    assert found.exit_code == 0, found.to_json()
    return {
        "seconds": round(took_s, 1),
        "pending": found.verdicts["pending"],
        "judged": sum(found.verdicts.values()) - found.verdicts["pending"],
        "state_bytes": before_bytes,
        "written_bytes": _bytes(table) - before_bytes,
    }


def _stands_at_the_newest(history: History) -> None:
    """Note an audit in the history, as if it had left the current version of the table of open
    records."""
    (row,) = history.audits.collect()
    newest = {"audit": new_name(), "open_version": history.records.version}
    history.add({**row.asDict(), **newest})


def _bytes(table: Path) -> int:
    return sum(file.stat().st_size for file in table.rglob("*") if file.is_file())


if __name__ == "__main__":
    main(*(tuple(map(int, sys.argv[1:])) or FULL))
