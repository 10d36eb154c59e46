"""docs/audit-violations.md shows the audit's real findings."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from spark_jobs.results.result_tables import SHOW_ALL
from spark_jobs.verdicts.verdict_names import VIOLATIONS
from tests.spark.violation_examples.judging_examples import Example, judged, stories
from tests.spark.violation_examples.page import PAGE, block, shown
from tests.support.markdown_pages import anchors

NAMES = [story.__name__ for story in stories()]
Examples = dict[str, Example]


@pytest.fixture(scope="module")
def examples(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Examples:
    return {one.name: one for one in judged(spark, tmp_path_factory.mktemp("examples"))}


def test_every_example_is_on_the_page_once_and_the_page_has_no_other() -> None:
    assert sorted(shown()) == sorted(NAMES)
    assert PAGE.read_text("utf-8").count("<!-- example: ") == len(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_page_shows_what_the_audit_says_of_the_example(name: str, examples: Examples) -> None:
    """If this is correct, `python -m tests.spark.violation_examples` writes it to the page."""
    assert shown()[name] == block(examples[name])


@pytest.mark.parametrize("name", NAMES)
def test_an_example_shows_one_violation_and_nothing_else(name: str, examples: Examples) -> None:
    assert len(examples[name].findings) == 1


def test_every_violation_has_a_heading_and_an_example(examples: Examples) -> None:
    found = {finding.verdict for one in examples.values() for finding in one.findings}
    assert found == VIOLATIONS.keys()
    assert VIOLATIONS.keys() <= anchors(PAGE)


def test_page_says_what_it_leaves_out_of_the_commands() -> None:
    assert f"`…` stands for `{SHOW_ALL}`" in " ".join(PAGE.read_text("utf-8").split())
