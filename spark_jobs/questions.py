"""Questions that auditors ask about the results of audits, and any other in SQL.

`python -m spark_jobs.questions --output DIR` lists them, `--question NAME` answers one
(docs/audit.md#questions).
"""

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Annotated, Final

import typer
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.arguments import AsJson, DriverMemory, Master, Output, readable_errors, run
from spark_jobs.results.formatting import print_rows
from spark_jobs.results.question import Question, question, questions
from spark_jobs.results.result_tables import register_views
from spark_jobs.runtime.errors import QuestionRefused, explained
from spark_jobs.runtime.session import spark_session

LOGGER: Final = "SQLQueryContextLogger"
"""PySpark's: it writes each error in SQL to stderr, with its traceback, before it is raised."""


def values(texts: Iterable[str]) -> dict[str, str]:
    """By name, from `id=17`."""
    found = dict[str, str]()
    for text in texts:
        name, sign, value = text.partition("=")
        if not name or not sign:
            raise typer.BadParameter(f"{text} is no value: write NAME=VALUE, such as id=17")
        found[name] = value
    return found


def listed(known: Iterable[Question]) -> Iterator[str]:
    """The questions, and below each what it takes, as a terminal shows them."""
    for one in known:
        yield f"{one.name}: {one.asks}"
        for name, default, meaning in one.parameters:
            given = "" if default is None else f" [{default}]"
            yield f"    {name}{given}: {meaning}"


def main(
    output: Output,
    question: Annotated[
        str | None, typer.Option(help="The question's name; without one all are listed.")
    ] = None,
    sql: Annotated[
        str | None, typer.Option(help="Any other question, as SQL over the same views.")
    ] = None,
    given: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="What the question takes, or :NAME in --sql."
        ),
    ] = None,
    json: AsJson = False,
    master: Master = "local[*]",
    driver_memory: DriverMemory = "1g",
) -> None:
    """Answer a question about what audits found."""
    taken = values(given or ())
    if question is None and sql is None:
        print("\n".join(listed(questions().values())))
        return
    with readable_errors(), _readable_refusals():
        if question is not None and sql is not None:
            raise QuestionRefused("--question and --sql are two questions.", "Leave out one.")
        spark = spark_session("questions", master, driver_memory)
        register_views(spark, output)
        print_rows(_answer(spark, question, sql or "", taken), as_json=json)


def _answer(spark: SparkSession, name: str | None, sql: str, taken: dict[str, str]) -> DataFrame:
    if name is None:
        return spark.sql(sql, args=dict(taken))
    return question(name).answer(spark, taken)


@contextmanager
def _readable_refusals() -> Iterator[None]:
    """What Spark says of SQL or a value that it cannot take, as `QuestionRefused`."""
    PySparkLogger.getLogger(LOGGER).setLevel(logging.CRITICAL)
    try:
        with explained():
            yield
    except PySparkException as error:
        said = str(error).strip().partition("\n")[0].rstrip(".")
        raise QuestionRefused(
            f"Spark cannot answer: {said}.", "Correct the SQL, or the values in --set."
        ) from error


if __name__ == "__main__":
    run(main)
