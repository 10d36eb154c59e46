"""Times in headers, each form on its own."""

import pytest
from pyspark.sql import SparkSession

from spark_jobs.requests.times import delay_ms, digits, level_ms, plain_digits, rfc_3339_ms
from tests.support.expressions import answers

pytestmark = pytest.mark.core


def test_digits_are_1_to_15_and_nothing_else_with_or_without_a_regular_expression(
    spark: SparkSession,
) -> None:
    good = {"0": 0, "007": 7, "9" * 15: 10**15 - 1}
    bad = [
        "",
        " 5",
        "5 ",
        "+5",
        "-5",
        "5.0",
        "5.",
        "1e3",
        "9" * 16,
        "5\n",
        "\x005",
        "٣",
        None,
        "5L",
    ]
    texts, expected = [*good, *bad], [*good.values(), *([None] * len(bad))]
    assert answers(spark, texts, "string", digits) == expected
    assert answers(spark, texts, "string", plain_digits) == expected


def test_fractions_of_a_millisecond_are_rounded_up(spark: SparkSession) -> None:
    texts = ["PT0.001S", "PT0.0010001S", "PT0.000000001S", "PT1,0S", "P1W", "P1DT1H1M1S", "PT"]
    told = [1, 2, 1, 1_000, 604_800_000, 90_061_000, None]
    assert answers(spark, texts, "string", delay_ms) == told
    base = "2027-01-15T08:00:00"
    instants = [f"{base}{end}" for end in ("Z", ".0000001Z", ".001Z", ".5+01:00", "", ".Z")]
    ahead = [0, 1, 1, 500 - 3_600_000, None, None]
    expected = [None if ms is None else 1_800_000_000_000 + ms for ms in ahead]
    assert answers(spark, instants, "string", rfc_3339_ms) == expected


def test_a_delay_too_long_to_be_counted_is_longer_than_all(spark: SparkSession) -> None:
    far, unreadable = answers(spark, ["999999999999d", "9999999999999d"], "string", delay_ms)
    assert far > 10**18
    assert unreadable is None


def test_a_level_beyond_the_highest_counts_as_the_highest(spark: SparkSession) -> None:
    table = "array(10, 20, 30)"
    read = answers(spark, [0, 1, 3, 4, 10**14, None], "bigint", lambda n: level_ms(n, table))
    assert read == [0, 10, 30, 30, 30, None]
