"""Questions about results: SQL files over the views, and any other SQL.
`python -m spark_jobs.questions --output DIR` lists the questions, and `--question NAME` answers one
(docs/audit.md#questions). A file's first line is the question, as a comment. `-- :name text`
declares a required parameter, `-- :name=value text` one with a default. An empty default is NULL.
Other comments are notes.
"""

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from typing import Annotated, Final, NamedTuple

import typer
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.arguments import AsJson, DriverMemory, Master, Output, readable_errors, run
from spark_jobs.results.formatting import print_rows
from spark_jobs.results.result_tables import register_views
from spark_jobs.runtime.errors import QuestionRefused, explained
from spark_jobs.runtime.session import spark_session

SUFFIX: Final = ".sql"
NOTE: Final = re.compile(r"^-- (?!:)(.+)$", re.MULTILINE)
PARAMETER: Final = re.compile(r"^-- :(\w+)(?:=(\S*))? +(\S.*)$", re.MULTILINE)
LOGGER: Final = "SQLQueryContextLogger"
"""PySpark's logger. It writes SQL errors to stderr with their traceback."""


class Parameter(NamedTuple):
    """A value that a question takes. `default`: None if the value is required."""

    name: str
    default: str | None
    meaning: str


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its parameters and SQL."""

    name: str
    asks: str
    parameters: tuple[Parameter, ...]
    sql: str
    notes: str = ""
    """The meaning of its columns."""

    def answer(self, spark: SparkSession, values: Mapping[str, str] | None = None) -> DataFrame:
        """Answer from the views that `register_views` makes. Raises `QuestionRefused`."""
        given, known = values or {}, {one.name: one for one in self.parameters}
        for name in given.keys() - known.keys():
            raise QuestionRefused(
                f"The question {self.name} takes no {name}.",
                f"It takes {', '.join(known) or 'nothing'}.",
            )
        for name, one in known.items():
            if one.default is None and not given.get(name):
                raise QuestionRefused(
                    f"The question {self.name} needs a value for {name}: {one.meaning}.",
                    f"Give it with --set {name}=VALUE.",
                )
        taken = {name: given.get(name, one.default) or None for name, one in known.items()}
        return spark.sql(self.sql, args=taken)


def questions() -> dict[str, Question]:
    """Return all questions by name, sorted."""
    files = resources.files("spark_jobs").joinpath("results/questions").iterdir()
    texts = {file.name: file.read_text("utf-8") for file in files if file.name.endswith(SUFFIX)}
    names = [name.removesuffix(SUFFIX) for name in sorted(texts)]
    return {name: parsed(name, texts[name + SUFFIX]) for name in names}


def question(name: str) -> Question:
    """Return the question of that name. Raises `QuestionRefused`."""
    known = questions()
    if name not in known:
        raise QuestionRefused(
            f"There is no question {name}.", f"The questions are {', '.join(known)}."
        )
    return known[name]


def parsed(name: str, text: str) -> Question:
    """Parse a question's file."""
    asks = text.partition("\n")[0].removeprefix("-- ")
    parameters = (Parameter(*found.groups()) for found in PARAMETER.finditer(text))
    notes = " ".join(NOTE.findall(text)[1:])
    return Question(name, asks, tuple(parameters), text, notes)


def values(texts: Iterable[str]) -> dict[str, str]:
    """Parse values by name from texts like `id=17`."""
    found = dict[str, str]()
    for text in texts:
        name, sign, value = text.partition("=")
        if not name or not sign:
            raise typer.BadParameter(f"{text} is not a value: write NAME=VALUE, such as id=17")
        found[name] = value
    return found


def main(
    output: Output,
    name: Annotated[
        str | None,
        typer.Option(
            "--question", help="Name of the question. Without a name, all questions are listed."
        ),
    ] = None,
    sql: Annotated[
        str | None, typer.Option(help="Another question, as SQL over the same views.")
    ] = None,
    given: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="A value for the question's parameter, or for :NAME in --sql. Repeatable.",
        ),
    ] = None,
    json: AsJson = False,
    master: Master = "local[*]",
    driver_memory: DriverMemory = "1g",
) -> None:
    """Answer a question about the results of audits."""
    taken = values(given or ())
    if name is None and sql is None:
        for one in questions().values():
            print(f"{one.name}: {one.asks}")
            for parameter, default, meaning in one.parameters:
                default_shown = "" if default is None else f" [{default}]"
                print(f"    {parameter}{default_shown}: {meaning}")
        return
    with readable_errors(), _readable_refusals():
        if name is not None and sql is not None:
            raise QuestionRefused("--question and --sql exclude each other.", "Leave out one.")
        spark = spark_session("questions", master, driver_memory)
        register_views(spark, output)
        if name is None:
            answer = spark.sql(sql or "", args=dict(taken))
        else:
            answer = question(name).answer(spark, taken)
        print_rows(answer, as_json=json)


@contextmanager
def _readable_refusals() -> Iterator[None]:
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
