"""Questions that auditors ask, each a file of SQL over the views (`views`).

A file's first line is the question, as a comment. A comment `-- :name text` is a parameter that
must be given, `-- :name=value text` one that has a value otherwise; an empty one is NULL.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.runtime.errors import QuestionRefused

FOLDER: Final = "questions"
SUFFIX: Final = ".sql"
COMMENT: Final = "-- "
PARAMETER: Final = re.compile(r"^-- :(\w+)(?:=(\S*))? +(\S.*)$", re.MULTILINE)


class Parameter(NamedTuple):
    """A value that a question takes. default: None where it must be given."""

    name: str
    default: str | None
    meaning: str


@dataclass(frozen=True, slots=True)
class Question:
    """A question: its name, as a person asks it, what it takes, and its SQL."""

    name: str
    asks: str
    parameters: tuple[Parameter, ...]
    sql: str

    def answer(self, spark: SparkSession, values: Mapping[str, str] | None = None) -> DataFrame:
        """The answer, by the views of the session (`views.register_views`).

        Raises `QuestionRefused` where a value lacks, or is of no parameter."""
        return spark.sql(self.sql, args=self._arguments(values or {}))

    def _arguments(self, values: Mapping[str, str]) -> dict[str, str | None]:
        names = [one.name for one in self.parameters]
        for name in values:
            if name not in names:
                raise QuestionRefused(
                    f"The question {self.name} takes no {name}.",
                    f"It takes {', '.join(names) or 'nothing'}.",
                )
        for one in self.parameters:
            if one.default is None and not values.get(one.name):
                raise QuestionRefused(
                    f"The question {self.name} needs a value for {one.name}: {one.meaning}.",
                    f"Give it with --set {one.name}=VALUE.",
                )
        return {one.name: values.get(one.name, one.default) or None for one in self.parameters}


def questions() -> dict[str, Question]:
    """All questions by name, in the order of their names."""
    folder = resources.files("spark_jobs.results") / FOLDER
    texts = {
        file.name.removesuffix(SUFFIX): file.read_text("utf-8")
        for file in folder.iterdir()
        if file.name.endswith(SUFFIX)
    }
    return {name: parsed(name, texts[name]) for name in sorted(texts)}


def question(name: str) -> Question:
    """The question of that name. Raises `QuestionRefused` where there is none."""
    known = questions()
    if name not in known:
        raise QuestionRefused(
            f"There is no question {name}.", f"The questions are {', '.join(known)}."
        )
    return known[name]


def parsed(name: str, text: str) -> Question:
    """The question that a file of this name and text holds."""
    asks = text.partition("\n")[0].removeprefix(COMMENT)
    parameters = (Parameter(*found.groups()) for found in PARAMETER.finditer(text))
    return Question(name, asks, tuple(parameters), text)
