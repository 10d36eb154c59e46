"""Tables and figures show the findings."""

from pathlib import Path

from pyspark.sql import SparkSession

from spark_jobs.histories.reader import Unverifiable
from spark_jobs.results.result_tables import read_verdicts, read_violations, write_tables
from spark_jobs.results.summary import Audited, AuditedRange
from spark_jobs.runtime.frames import location
from spark_jobs.tables import Tables
from spark_jobs.verdicts.evaluation import VERDICTS
from tests.support.verdict_rows import delivered, undelivered, verdicts

AUDITED = Audited(
    "here:9092",
    "timer.ingress",
    99,
    (AuditedRange(0, 0, 6, 6, 90, 0, 6),),
    (Unverifiable(0, 0, 1, "aged out"),),
)
EARLY = {"verdict": "early", "is_violation": True, "detail": "5 ms early"}


def test_tables_and_figures_tell_what_was_found(spark: SparkSession, tmp_path: Path) -> None:
    rows = [
        *(delivered(offset, 60_000 + offset, lateness_ms=offset) for offset in range(101)),
        delivered(200, 10, lateness_ms=-5, **EARLY),
        undelivered(201, "missing", is_violation=True),
        undelivered(202, "pending"),
        undelivered(203, "dead_lettered", detail="too-large: 9 bytes"),
        undelivered(204, "dead_lettered", detail="id-bad: it is empty"),
    ]
    frame = verdicts(spark, rows)
    tables = Tables(spark, location(tmp_path))
    told = write_tables(frame, AUDITED, "one", tables).summary.to_json()
    assert {name: n for name, n in told["verdicts"].items() if n} == {
        "delivered": 101,
        "early": 1,
        "missing": 1,
        "pending": 1,
        "dead_lettered": 2,
    }
    assert told["believed"] == 1
    assert (told["verdicts"]["altered"], told["violations"]) == (0, 2)
    assert told["violations_by"] == {"early": 1, "missing": 1}
    assert told["lateness_ms"] == {"p50": 50, "p99": 99, "max": 100}
    assert told["ranges"][0]["next_offset"] == 6
    assert told["unverifiable"] == [{"partition": 0, "start": 0, "end": 1, "why": "aged out"}]
    assert told["at_ms"] == told["audited_until_ms"] == 99
    assert told["result"] == "violated"
    assert told["not_judged"] == {"deleted from the ingress before this audit read them": 1}
    assert sorted(read_verdicts(tables, "one").collect()) == sorted(frame.collect())


def test_violations_are_written_with_the_commands_that_show_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [
        delivered(7, 10, lateness_ms=-5, at_offset=3, **EARLY),
        undelivered(8, "missing", is_violation=True),
        delivered(9, 10, verdict="orphaned", is_violation=True, partition=None),
        delivered(10, 10),
    ]
    tables = Tables(spark, location(tmp_path))
    write_tables(verdicts(spark, rows), AUDITED, "one", tables)

    table = read_violations(tables, "one")
    looks = {row.offset: row.look.splitlines() for row in table.collect()}
    console = "kafka-console-consumer.sh --bootstrap-server here:9092 --topic"
    assert set(table.columns) == {*VERDICTS, "look"}
    assert [len(looks[offset]) for offset in (7, 8, 9)] == [2, 1, 1]
    assert looks[7][0].startswith(f"{console} timer.ingress --partition 0 --offset 7 --max")
    assert looks[7][1].startswith(f"{console} orders --partition 0 --offset 3 --max-messages 1")
    assert looks[9][0].startswith(f"{console} orders ")
    assert set(looks) == {7, 8, 9}


def test_audit_of_nothing_gives_whole_results(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables(spark, location(tmp_path))
    summary = write_tables(verdicts(spark, []), AUDITED, "one", tables).summary
    assert set(summary.verdicts.values()) == {0}
    assert summary.lateness_ms == {"p50": None, "p99": None, "max": None}
    assert read_verdicts(tables, "one").count() == 0
