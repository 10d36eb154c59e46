"""Fingerprints differ exactly if the required deliveries differ."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from spark_jobs.records import headers as header_names
from spark_jobs.records.hashes import headers_hash, letter_hash
from tests.support.expressions import HEADERS, answers

Header = tuple[str, bytes | None]
DIFFERENT: list[list[Header]] = [
    [],
    [("a", None)],
    [("a", b"")],
    [("a", b"b")],
    [("b", b"a")],
    [("a", None), ("b", None)],
    [("a", b"1"), ("b", None)],
    [("a", None), ("b", b"1")],
    [("b", b"1"), ("a", None)],
    [("a", b"1"), ("a", b"1")],
    [("a", b"1"), ("a", b"1"), ("a", b"1")],
]


def test_fingerprints_of_headers_differ_where_headers_differ(spark: SparkSession) -> None:
    found = answers(spark, DIFFERENT, HEADERS, headers_hash)
    assert len(set(found)) == len(DIFFERENT)


def test_fingerprints_of_users_headers_heed_no_stamps_and_no_requests(spark: SparkSession) -> None:
    user: list[Header] = [("a", b"1"), ("b", None)]
    stamped = [("timer-topic", b"t"), user[0], ("timer-origin", b"o"), user[1]]
    one, other = answers(spark, [user, stamped], HEADERS, headers_hash)
    assert one == other


def test_fingerprints_tell_null_from_empty_and_a_letter_s_from_another_key_s(
    spark: SparkSession,
) -> None:
    assert len(set(answers(spark, [None, b"", b"\x00"], "binary", "xxhash64({})".format))) == 3
    letters = answers(
        spark,
        [None, b"", b"a"],
        "binary",
        lambda key: letter_hash(key, f"CAST(array() AS {HEADERS})"),
    )
    assert len(set(letters)) == 3


@pytest.mark.parametrize("name", header_names.NOT_IN_A_LETTER)
def test_what_a_dead_letter_says_anew_is_not_in_its_fingerprint(
    spark: SparkSession, name: str
) -> None:
    asked: list[Header] = [("timer-topic", b"t"), ("a", b"1")]
    cases = [asked, [*asked, (name, b"x")], [*asked, ("timer-due", b"1")]]
    same, with_name, with_due = answers(
        spark, cases, HEADERS, lambda headers: letter_hash("X'6b'", headers)
    )
    assert same == with_name != with_due
