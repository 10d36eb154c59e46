"""Results appear whole or not at all, and say what was found."""

import fcntl
import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from spark_jobs.evidence.partition_state import Unverifiable
from spark_jobs.results.result_tables import read_verdicts, write_summary, write_tables
from spark_jobs.results.results_folder import LOCK, SUMMARY, new_results, whole_results
from spark_jobs.results.summary import Audited, AuditedRange
from spark_jobs.runtime.errors import ResultsRefused
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
    summary = write_tables(frame, AUDITED, tmp_path)
    write_summary(summary, tmp_path)

    told = json.loads((tmp_path / SUMMARY).read_text())
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
    assert sorted(read_verdicts(spark, tmp_path).collect()) == sorted(frame.collect())


def test_violations_are_written_with_the_commands_that_show_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [
        delivered(7, 10, lateness_ms=-5, at_offset=3, **EARLY),
        undelivered(8, "missing", is_violation=True),
        delivered(9, 10, verdict="orphaned", is_violation=True, partition=None),
        delivered(10, 10),
    ]
    write_tables(verdicts(spark, rows), AUDITED, tmp_path)

    table = spark.read.parquet(str(tmp_path / "violations"))
    looks = {row.offset: row.look.splitlines() for row in table.collect()}
    console = "kafka-console-consumer.sh --bootstrap-server here:9092 --topic"
    assert set(table.columns) == {*VERDICTS, "look"}
    assert [len(looks[offset]) for offset in (7, 8, 9)] == [2, 1, 1]
    assert looks[7][0].startswith(f"{console} timer.ingress --partition 0 --offset 7 --max")
    assert looks[7][1].startswith(f"{console} orders --partition 0 --offset 3 --max-messages 1")
    assert looks[9][0].startswith(f"{console} orders ")
    assert set(looks) == {7, 8, 9}


def test_audit_of_nothing_gives_whole_results(spark: SparkSession, tmp_path: Path) -> None:
    summary = write_tables(verdicts(spark, []), AUDITED, tmp_path)
    assert set(summary.verdicts.values()) == {0}
    assert summary.lateness_ms == {"p50": None, "p99": None, "max": None}
    assert read_verdicts(spark, tmp_path).count() == 0


def test_results_appear_when_all_went_well_and_replace_older_ones(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "audit"
    for number in "12":
        with new_results(folder) as arriving:
            (arriving / SUMMARY).write_text(number)
            assert not folder.exists() or (folder / SUMMARY).read_text() == "1"
        assert (folder / SUMMARY).read_text() == number
    assert list(folder.parent.iterdir()) == [folder]
    assert whole_results(folder) == folder


def test_results_go_to_where_a_link_leads(tmp_path: Path) -> None:
    (tmp_path / "large").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "large")
    with new_results(tmp_path / "link") as arriving:
        (arriving / SUMMARY).touch()
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "large" / SUMMARY).exists()


def test_nothing_is_left_of_results_that_failed(tmp_path: Path) -> None:
    def fail(arriving: Path) -> None:
        (arriving / "half").write_text("written")
        raise OSError(28, "No space left on device")

    with (
        pytest.raises(ResultsRefused, match=r"disk is full.*--output"),
        new_results(tmp_path / "audit") as arriving,
    ):
        fail(arriving)
    assert list(tmp_path.iterdir()) == []


def test_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(ResultsRefused, match=r"cannot be written.*--output"),
        new_results(tmp_path / "file" / "audit"),
    ):
        raise AssertionError("must not be reached")


def test_failure_of_a_tasks_disk_leaves_nothing_and_is_named(
    spark: SparkSession, tmp_path: Path
) -> None:
    full = f.raise_error(f.lit("java.io.IOException: No space left on device"))
    frame = verdicts(spark, [delivered(1, 10)]).withColumn("detail", full.cast("string"))
    with pytest.raises(ResultsRefused, match="disk is full"), new_results(tmp_path / "a") as folder:
        write_tables(frame, AUDITED, folder)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["file", "folder", "dangling link"])
def test_what_is_not_an_audits_is_never_overwritten(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "precious"
    if kind == "file":
        folder.write_text("mine")
    elif kind == "folder":
        folder.mkdir()
        (folder / "mine").touch()
    else:
        folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ResultsRefused, match="does not hold"), new_results(folder):
        raise AssertionError("must not be reached")
    assert list(tmp_path.iterdir()) == [folder]


def test_what_a_killed_audit_left_is_cleared_but_not_what_still_runs(tmp_path: Path) -> None:
    killed, running = (tmp_path / f".audit.arriving-{name}" for name in ("killed", "running"))
    for folder in (killed, running):
        folder.mkdir()
        (folder / LOCK).touch()
    with (running / LOCK).open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with new_results(tmp_path / "audit") as arriving:
            (arriving / SUMMARY).touch()
    assert {path.name for path in tmp_path.iterdir()} == {"audit", running.name}


def test_folder_without_results_is_refused_for_reading(tmp_path: Path) -> None:
    with pytest.raises(ResultsRefused, match="--output"):
        whole_results(tmp_path)
