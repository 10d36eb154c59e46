"""Patterns of topic names match as in a shell."""

import itertools
from fnmatch import fnmatchcase

from pyspark.sql import SparkSession

from spark_jobs.records.headers import java_regex
from tests.support.expressions import answers


def test_patterns_of_topics_find_what_a_shell_would(spark: SparkSession) -> None:
    patterns = [
        *("*", "?", "", "orders", "or*s", "*.eu", "a?c", "[a-c]*", "[!a-c]*", "[]a]", "[!]a]b"),
        *("[a", "a[", "[]", "[!]", "[a-]", "[z-a]", "[^a]", "a.c", "a+c", "(a|b)", "a\\c", "[[]a"),
        *("**b", "[&&a]", "a{1}", "$", "^a"),
    ]
    names = [
        "orders",
        "or.s",
        "a",
        "b",
        "z",
        "-",
        "_",
        "ab",
        "bb",
        "abc",
        "a.c",
        "x.eu",
        "a-c",
        "aa",
    ]
    cases = list(itertools.product(patterns, names))
    rows = [{"regex": java_regex([pattern]), "name": name} for pattern, name in cases]
    found = answers(
        spark, rows, "struct<regex:string,name:string>", "rlike({0}.name, {0}.regex)".format
    )
    assert found == [fnmatchcase(name, pattern) for pattern, name in cases]


def test_several_patterns_find_what_any_of_them_finds_and_none_find_nothing() -> None:
    assert java_regex(["a", "b*"]) == r"\A(?:[a]|[b].*)\z"
    assert java_regex([]) == r"\A(?:(?!))\z"
