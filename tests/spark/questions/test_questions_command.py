"""Command line of the questions: arguments, output and refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from pyspark.sql import SparkSession

from spark_jobs import questions
from spark_jobs.questions import parsed
from spark_jobs.runtime.errors import QuestionRefused
from spark_jobs.runtime.frames import Location, location

TEXT = """\
-- What is it?
-- :id the id
-- :late_ms=60000 later than so many ms
-- :day= a day
SELECT :id, :late_ms, :day
"""


def test_a_file_says_what_it_asks_and_takes() -> None:
    found = parsed("it", TEXT)
    assert (found.name, found.asks) == ("it", "What is it?")
    assert [tuple(one) for one in found.parameters] == [
        ("id", None, "the id"),
        ("late_ms", "60000", "later than so many ms"),
        ("day", "", "a day"),
    ]


def test_values_that_are_not_given_are_the_usual_ones_or_null(spark: SparkSession) -> None:
    assert parsed("it", TEXT).answer(spark, {"id": "17"}).collect() == [("17", "60000", None)]


@pytest.mark.parametrize(
    ("values", "said"),
    [({}, "needs a value for id: the id"), ({"id": ""}, "needs a value"), ({"x": "1"}, "no x")],
)
def test_values_that_lack_or_are_of_no_parameter_are_refused(
    spark: SparkSession, values: dict[str, str], said: str
) -> None:
    with pytest.raises(QuestionRefused, match=said):
        parsed("it", TEXT).answer(spark, values)


def test_values_on_the_command_line_have_a_name() -> None:
    assert questions.values(["id=17=x", "day="]) == {"id": "17=x", "day": ""}
    for wrong in ("17", "=17"):
        with pytest.raises(typer.BadParameter, match="such as id=17"):
            questions.values([wrong])


def test_without_a_question_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    questions.main(location("/nowhere"))
    told = capsys.readouterr().out.splitlines()
    assert "late_records: Which records were later than a minute?" in told
    assert "    late_ms [60000]: records later than this many milliseconds count as late" in told


def test_the_command_prints_the_answer_for_people_and_for_programs(
    spark: SparkSession, audited: Location, capsys: pytest.CaptureFixture[str]
) -> None:
    questions.main(audited, name="late_records", given=["late_ms=300000"])
    told = " ".join(capsys.readouterr().out.splitlines()[1].split())
    assert told == "2026-11-25 11:00 orders 0 24 pending 2026-11-25 11:50:00.000 UTC 10 min"
    sql = (
        "SELECT verdict, offset, DATE'2026-11-25' AS day FROM newest WHERE id = :id AND offset < 20"
    )
    questions.main(audited, sql=sql, given=["id=h3"], json=True)
    row = json.loads(capsys.readouterr().out)
    assert row == {"verdict": "rolled_back", "offset": 19, "day": "2026-11-25"}


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"name": "why"}, "There is no question why. The questions are changed_verdicts, "),
        ({"name": "violations", "sql": "SELECT 1"}, "exclude each other"),
        ({"sql": "SELECT nothing FROM newest"}, "UNRESOLVED_COLUMN"),
        ({"sql": "SELEC"}, "PARSE_SYNTAX_ERROR"),
        ({"name": "late_records", "given": ["late_ms=soon"]}, "'soon'"),
        ({"name": "how_late", "given": ["by=day"]}, "by is target, hour or minute"),
    ],
)
def test_what_cannot_be_answered_is_refused_in_a_sentence(
    spark: SparkSession,
    audited: Location,
    capsys: pytest.CaptureFixture[str],
    asked: dict[str, object],
    said: str,
) -> None:
    with pytest.raises(typer.Exit) as ended:
        questions.main(audited, **asked)  # type: ignore[arg-type]
    assert ended.value.exit_code == 1
    told = capsys.readouterr().err
    assert told.startswith("Error: ")
    assert said in told
    assert len(told.splitlines()) == 1


def test_a_place_without_an_audit_is_refused(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit):
        questions.main(location(tmp_path), name="violations")
    assert "does not hold the results of an audit" in capsys.readouterr().err
