"""The audit finds the violation of each example; docs/audit-violations.md explains all of them."""

from __future__ import annotations

import re

import pytest
from pyspark.sql import SparkSession

from spark_jobs.results.result_tables import SHOW_ALL
from spark_jobs.verdicts.verdict_names import VIOLATIONS
from tests.spark.violation_examples.judging_examples import Example, judged, stories
from tests.spark.violation_examples.page import BLOCKS, PAGE, block, shown, without_commands
from tests.support.markdown_pages import anchors, prose

NAMES = [story.__name__ for story in stories()]
ON_THE_PAGE = shown(PAGE)
Examples = dict[str, Example]
SENTENCE = re.compile(r"(?<!\*)\*([^*]+)\*(?!\*)")
PUT_IN = re.compile(r"…|\b(?:[nm]|\d+)\b")


@pytest.fixture(scope="module")
def examples(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Examples:
    return {one.name: one for one in judged(spark, tmp_path_factory.mktemp("examples"))}


def test_every_example_is_in_the_blocks_once_and_the_blocks_have_no_other() -> None:
    assert sorted(shown(BLOCKS)) == sorted(NAMES)
    assert BLOCKS.read_text("utf-8").count("<!-- example: ") == len(NAMES)
    assert PAGE.read_text("utf-8").count("<!-- example: ") == len(ON_THE_PAGE)


@pytest.mark.parametrize("name", NAMES)
def test_a_block_shows_what_the_audit_says_of_the_example(name: str, examples: Examples) -> None:
    """If this is correct, `python -m tests.spark.violation_examples` writes it to the page."""
    assert shown(BLOCKS)[name] == block(examples[name])


@pytest.mark.parametrize("name", NAMES)
def test_an_example_shows_one_violation_and_nothing_else(name: str, examples: Examples) -> None:
    assert len(examples[name].findings) == 1


@pytest.mark.parametrize("name", ON_THE_PAGE)
def test_the_page_shows_the_same_without_the_commands(name: str) -> None:
    assert ON_THE_PAGE[name] == without_commands(shown(BLOCKS)[name])


def test_every_violation_has_a_heading_and_an_example_on_the_page(examples: Examples) -> None:
    found = {finding.verdict for name in ON_THE_PAGE for finding in examples[name].findings}
    assert found == VIOLATIONS.keys()
    assert VIOLATIONS.keys() <= anchors(PAGE)


@pytest.mark.parametrize("name", NAMES)
def test_the_page_explains_the_sentence_of_the_example(name: str, examples: Examples) -> None:
    sentences = (" ".join(one.split()) for one in SENTENCE.findall(prose(PAGE)))
    patterns = [".*".join(map(re.escape, PUT_IN.split(one))) for one in sentences]
    (finding,) = examples[name].findings
    assert any(re.fullmatch(one, finding.detail) for one in patterns)


def test_the_page_shows_a_whole_command_and_the_blocks_say_what_they_leave_out() -> None:
    assert SHOW_ALL in " ".join(PAGE.read_text("utf-8").replace("\\\n", "").split())
    assert f"`…` stands for `{SHOW_ALL}`" in BLOCKS.read_text("utf-8")
