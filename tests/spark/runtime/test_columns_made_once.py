"""A column that was made before is found again, and only where it is the same."""

from __future__ import annotations

import pytest
from py4j.java_gateway import GatewayClient
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as f

from spark_jobs.runtime import made_once
from spark_jobs.runtime.made_once import LONGEST

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture
def questions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the JVM is asked meanwhile, but to forget what nobody has any more."""
    asked: list[str] = []
    answered = GatewayClient.send_command

    def noted(client: GatewayClient, command: str, *more: object, **options: object) -> object:
        if not command.startswith("m\n"):
            asked.append(command)
        return answered(client, command, *more, **options)

    monkeypatch.setattr(GatewayClient, "send_command", noted)
    return asked


def some_column(limit: int) -> Column:
    text = f.coalesce(f.col("text").cast("string"), f.lit("none"))
    found = f.when(f.col("number") > limit, f.concat(text, f.lit("!"))).otherwise(text)
    return f.struct(found.alias("found"), ~f.col("is_there"), f.col("of")["it"])


def test_column_of_the_same_parts_is_made_without_a_question(questions: list[str]) -> None:
    made = some_column(10)
    assert questions
    questions.clear()
    again = some_column(10)
    assert not questions
    assert str(again) == str(made)


def test_columns_that_differ_in_one_part_are_others(spark: SparkSession) -> None:
    """Also where Python takes them for equal: 1, 1.0 and True."""
    equal = (1, 1.0, True)
    rows = spark.range(1).select(*(f.lit(one).alias(type(one).__name__) for one in equal))
    assert [kind for _, kind in rows.dtypes] == ["int", "double", "boolean"]
    assert str(some_column(11)) != str(some_column(10))
    first, second = (spark.range(1).select(f.array(*map(f.lit, few))) for few in ("ab", "ba"))
    assert (first.first(), second.first()) == ((["a", "b"],), (["b", "a"],))


def test_columns_of_frames_and_of_chance_and_of_lambdas_are_made_anew(spark: SparkSession) -> None:
    one, other = spark.range(1), spark.range(1)
    assert one["id"]._jc is not other["id"]._jc
    assert f.rand()._jc is not f.rand()._jc
    both = one.select((f.rand() == f.rand()).alias("same"))
    assert both.collect()[0].same is False
    few = f.array(f.lit(1), f.lit(2))
    pairs = f.transform(few, lambda x: f.transform(few, lambda y: x * 10 + y))
    assert one.select(pairs.alias("pairs")).collect()[0].pairs == [[11, 12], [21, 22]]
    assert f.broadcast(one).count() == f.broadcast(other).count() == 1


def test_data_and_what_is_made_of_it_are_not_kept(questions: list[str]) -> None:
    """As rows that travel as one literal: an audit that goes on has others in each batch."""
    for _ in range(2):
        questions.clear()
        f.from_json(f.lit("x" * (LONGEST + 1)), "a int", {"mode": "FAILFAST"})
        assert len(questions) > 1
    f.from_json(f.lit("[]"), "a int", {"mode": "FAILFAST"})
    questions.clear()
    f.from_json(f.lit("[]"), "a int", {"mode": "FAILFAST"})
    assert not questions


def test_no_more_is_kept_than_has_a_bound(
    monkeypatch: pytest.MonkeyPatch, questions: list[str]
) -> None:
    """What was made before it was reached still serves."""
    monkeypatch.setattr(made_once, "MOST", 3)
    made = f.col("the first").cast("string")
    for number in range(5):
        f.lit(f"filling {number}")
    questions.clear()
    again = f.col("the first").cast("string")
    assert any("the first" in question for question in questions)
    assert str(made.alias("a")) == str(again.alias("a"))
