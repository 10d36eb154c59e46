"""Audits of a place are added whole or not at all, and overwrite nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from spark_jobs.histories.reader import ReadSoFar
from spark_jobs.results.result_tables import newest_of_chain, write_tables
from spark_jobs.results.summary import (
    REPORT,
    SUMMARY,
    Audited,
    History,
    MadeAudit,
    check_place,
    gone_on_from,
    new_name,
    row_of,
    writing,
)
from spark_jobs.runtime.errors import ResultsRefused
from spark_jobs.runtime.frames import location
from tests.support.audit_results import verdicts_in
from tests.support.verdict_rows import delivered, undelivered, verdicts

AUDITED = Audited("here:9092", "timer.ingress", 99, ())
READ = ReadSoFar("timer.ingress", "id", "group", {}, {})


def added(history: History, *rows: dict[str, object], before: MadeAudit | None = None) -> str:
    name, spark = new_name(), history.audits.sparkSession
    written = write_tables(verdicts(spark, list(rows)), AUDITED, name, history.tables)
    history.add(row_of(name, written.summary, f"<html>{name}", before))
    return name


def test_newest_verdict_of_each_record_is_that_of_the_last_audit_in_a_chain_that_gave_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    history = History(spark, location(tmp_path / "deep" / "results of ours"))
    check_place(history.place)
    added(history, undelivered(1, "missing", is_violation=True))
    first = added(history, undelivered(1, "pending"), undelivered(2, "pending"), delivered(3, 5))
    unfinished = new_name()
    write_tables(verdicts(spark, [delivered(2, 5)]), AUDITED, unfinished, history.tables)
    added(history, delivered(1, 5), before=MadeAudit(first, READ, 0))

    found = newest_of_chain(history).collect()
    told = {row.offset: row.verdict for row in found}
    assert told == {1: "delivered", 2: "pending", 3: "delivered"}
    assert [row.offset for row in verdicts_in(spark, history.place).collect()] == [1]
    assert history.audits.count() == 3


def test_files_of_the_last_audit_lie_beside_the_tables_on_this_machine(
    spark: SparkSession, tmp_path: Path
) -> None:
    history = History(spark, location(tmp_path))
    for count in (1, 2):
        name = added(history, *(delivered(n, 5) for n in range(count)))
        assert (tmp_path / REPORT).read_text() == f"<html>{name}"
        told = json.loads((tmp_path / SUMMARY).read_text())
        assert told["verdicts"]["delivered"] == count
    rows = history.audits.orderBy("audit").collect()
    assert [json.loads(row.summary)["verdicts"]["delivered"] for row in rows] == [1, 2]
    assert not [one.name for one in tmp_path.iterdir() if one.name.startswith(".")]


def test_only_audits_of_everything_are_gone_on_from(spark: SparkSession, tmp_path: Path) -> None:
    history = History(spark, location(tmp_path))
    assert not history.has_any
    with pytest.raises(ResultsRefused, match="--offsets limited it"):
        history.newest()
    added(history, delivered(1, 5))
    assert not history.has_any
    name = new_name()
    summary = write_tables(verdicts(spark, []), AUDITED, "x", history.tables).summary
    history.add(row_of(name, summary, "", None) | gone_on_from(READ, 0))
    added(history, delivered(1, 5))
    assert (history.newest().name, history.newest().read) == (name, READ)
    history.add({**row_of(new_name(), summary, "", None), "read": "{}", "open_version": 1})
    with pytest.raises(ResultsRefused, match="cannot be read"):
        history.newest()


def test_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ResultsRefused, match=r"cannot be written.*--output"):
        check_place(location(tmp_path / "file" / "audit"))


def test_failure_of_a_tasks_disk_adds_no_audit_and_is_named(
    spark: SparkSession, tmp_path: Path
) -> None:
    full = f.raise_error(f.lit("java.io.IOException: No space left on device"))
    frame = verdicts(spark, [delivered(1, 10)]).withColumn("detail", full.cast("string"))
    history = History(spark, location(tmp_path))
    with pytest.raises(ResultsRefused, match="disk is full"), writing(history.place):
        write_tables(frame, AUDITED, new_name(), history.tables)
    assert history.audits.count() == 0
    with pytest.raises(ResultsRefused, match="does not hold"):
        newest_of_chain(history)


@pytest.mark.parametrize("kind", ["file", "folder", "dangling link", "old state"])
def test_what_is_not_an_audits_is_never_overwritten(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "precious"
    if kind == "file":
        folder.write_text("mine")
    elif kind == "dangling link":
        folder.symlink_to(tmp_path / "elsewhere")
    else:
        (folder / ("mine" if kind == "folder" else "state")).mkdir(parents=True)
    before = list(tmp_path.rglob("*"))
    with pytest.raises(ResultsRefused, match="Name a new folder"):
        check_place(location(folder))
    assert list(tmp_path.rglob("*")) == before


def test_place_goes_to_where_a_link_leads(tmp_path: Path) -> None:
    (tmp_path / "large").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "large")
    check_place(location(tmp_path / "link"))
    check_place(location(tmp_path / "link"))
    assert (tmp_path / "large" / "audits").is_dir()


def test_places_are_folders_of_this_machine_or_uris() -> None:
    here = location("/srv/two words")
    assert (here.uri, here.folder, str(here)) == (
        "file:///srv/two words",
        Path("/srv/two words"),
        "/srv/two words",
    )
    assert location("file:///srv/audits") == location("/srv/audits")
    there = location("s3a://bucket/audits/")
    assert (str(there / "verdicts"), there.folder) == ("s3a://bucket/audits/verdicts", None)
    assert location("audits").folder == Path("audits").absolute()
