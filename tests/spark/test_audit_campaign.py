"""A slice of the audit campaign. `python -m tools.campaign` runs it all."""

from __future__ import annotations

from collections import Counter
from unittest.mock import patch

import pytest
from pyspark.sql import SparkSession

from spark_jobs.verdicts import evaluation
from spark_jobs.verdicts.rules import ruling
from spark_jobs.verdicts.verdict_names import MISSING, VIOLATIONS
from tools.campaign.campaign import Chunk, Figures, drawn_chunk, judge
from tools.campaign.operators.catalogue import OPERATORS
from tools.campaign.report import lines
from tools.campaign.rules_off import without_each_rule

pytestmark = pytest.mark.slow

SEED = 1
RUNS = 130
RUNS_AT_MOST = 1_000
"""More runs are drawn only for rare faults that are still missing."""
OTHER_MODES = 50
SEED_OF_RULES = 9
RUNS_OF_RULES = 200
"""Some rules apply rarely: late records without a place or an outcome."""


@pytest.fixture(scope="module")
def chunk() -> Chunk:
    planted: Counter[str] = Counter()
    chunk = drawn_chunk(SEED, range(RUNS), OPERATORS, planted)
    for number in range(RUNS, RUNS_AT_MOST):
        if not (missing := {n: one for n, one in OPERATORS.items() if not planted[n]}):
            break
        more = drawn_chunk(SEED, [number], missing, planted)
        if more.faulty:
            chunk = Chunk([*chunk.clean, *more.clean], [*chunk.faulty, *more.faulty])
    assert {name for name in OPERATORS if planted[name]} == OPERATORS.keys()
    return chunk


def _judged(spark: SparkSession, chunk: Chunk, *modes: str) -> Figures:
    figures = Figures()
    judge(spark, chunk, modes, figures)
    return figures


def test_one_audit_names_every_planted_fault_and_nothing_else(
    spark: SparkSession, chunk: Chunk
) -> None:
    figures = _judged(spark, chunk, "batch")
    assert not figures.wrong, "\n".join(lines(figures))
    assert figures.verdicts.keys() >= VIOLATIONS.keys()
    assert {name for name, _ in figures.caught} == OPERATORS.keys()


def test_audits_that_go_on_name_what_one_of_everything_names(
    spark: SparkSession, chunk: Chunk
) -> None:
    part = Chunk(chunk.clean[:OTHER_MODES], chunk.faulty[:OTHER_MODES])
    figures = _judged(spark, part, "continued")
    assert not figures.wrong, "\n".join(lines(figures))


@pytest.mark.parametrize("sight", ["deleted", "outcomes-deleted-in-part", "forgotten"])
def test_nothing_is_a_violation_for_not_being_seen(
    spark: SparkSession, chunk: Chunk, sight: str
) -> None:
    figures = _judged(spark, chunk, sight)
    assert not figures.wrong, "\n".join(lines(figures))


@pytest.mark.long
def test_each_rule_that_is_disabled_is_noticed(spark: SparkSession) -> None:
    chunk = drawn_chunk(SEED_OF_RULES, range(RUNS_OF_RULES), OPERATORS, Counter())
    found = without_each_rule(spark, chunk, lambda _: None, with_parts=False)
    assert [one.name for one in found if not one.noticed_by] == []


def test_campaign_sees_that_a_rule_is_missing(spark: SparkSession, chunk: Chunk) -> None:
    few = {"delivery-lost", "outcome-lost"}
    part = Chunk((), [one for one in chunk.faulty if one.operator.name in few])
    rest = [rule for rule in evaluation.RULES if rule.verdict != MISSING]
    with patch.object(evaluation, "RULING", ruling(rest)):
        figures = _judged(spark, part, "batch")
    assert few <= {one.operator for one in figures.wrong}
