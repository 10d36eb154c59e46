"""The pieces that the audit reads records by, each on its own: many cases in one frame."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as f

from proxy import headers
from spark_jobs.records import header_names
from spark_jobs.records.fingerprints import bytes_hash, headers_hash, letter_hash
from spark_jobs.records.murmur2 import key_number
from spark_jobs.records.topic_names import java_regex
from spark_jobs.requests.times import delay_ms, digits, level_ms, plain_digits, rfc_3339_ms
from tests.support.frames import frame_of, headers_told

Header = tuple[str, bytes | None]
HEADERS = "array<struct<key:string,value:binary>>"
JAVA_MURMUR2 = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
"""From Kafka's own UtilsTest.testMurmur2."""


def answers(
    spark: SparkSession, cases: Sequence[Any], kind: str, read: Callable[[Column], Column]
) -> list[Any]:
    """What the expression makes of each case."""
    told = map(headers_told, cases) if kind == HEADERS else cases
    rows = [{"number": number, "told": case} for number, case in enumerate(told)]
    frame = frame_of(spark, rows, {"number": "int", "told": kind})
    read_rows = frame.select("number", read(f.col("told")).alias("answer")).collect()
    return [row.answer for row in sorted(read_rows, key=lambda row: row.number)]


def test_the_audit_spells_every_header_as_the_proxy_does() -> None:
    ours = {n: v for n, v in vars(header_names).items() if isinstance(v, str) and n.isupper()}
    theirs = {
        name: value.decode() if isinstance(value, bytes) else value
        for name, value in vars(headers).items()
        if name.isupper()
    }
    assert ours == {name: theirs[name] for name in ours}
    assert set(header_names.KNOWN) == headers.KNOWN
    assert set(header_names.STAMPS) == headers.STAMPS
    assert set(header_names.BEYOND_PLAIN) == headers.SINCE_2
    assert set(header_names.USUAL) == headers.PLAIN | {headers.ID}


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
    table = f.array(*map(f.lit, (10, 20, 30)))
    read = answers(spark, [0, 1, 3, 4, 10**14, None], "bigint", lambda n: level_ms(n, table))
    assert read == [0, 10, 30, 30, 30, None]


def test_murmur2_is_that_of_the_java_client(spark: SparkSession) -> None:
    hashes = answers(spark, list(JAVA_MURMUR2), "binary", key_number)
    assert hashes == [number & 0x7FFF_FFFF for number in JAVA_MURMUR2.values()]
    [partition] = answers(spark, [b"foobar"], "binary", lambda key: key_number(key) % 7)
    assert partition == (-790332482 & 0x7FFF_FFFF) % 7


def test_murmur2_of_keys_of_any_bytes_and_length_is_as_computed_otherwise(
    spark: SparkSession,
) -> None:
    keys = [
        bytes((start + 37 * n) % 256 for n in range(length))
        for start, length in enumerate(range(40))
    ]
    assert answers(spark, keys, "binary", key_number) == [
        _murmur2(key) & 0x7FFF_FFFF for key in keys
    ]


def _murmur2(key: bytes) -> int:
    """The same in plain Python."""
    mask, m = 0xFFFF_FFFF, 0x5BD1E995
    found = 0x9747B28C ^ len(key)
    whole = len(key) // 4 * 4
    for at in range(0, whole, 4):
        word = int.from_bytes(key[at : at + 4], "little") * m & mask
        found = (found * m & mask) ^ ((word ^ word >> 24) * m & mask)
    if whole < len(key):
        found = (found ^ int.from_bytes(key[whole:], "little")) * m & mask
    found = (found ^ found >> 13) * m & mask
    return found ^ found >> 15


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
        spark, rows, "struct<regex:string,name:string>", lambda c: f.rlike(c["name"], c["regex"])
    )
    assert found == [fnmatchcase(name, pattern) for pattern, name in cases]


def test_several_patterns_find_what_any_of_them_finds_and_none_find_nothing() -> None:
    assert java_regex(["a", "b*"]) == r"\A(?:[a]|[b].*)\z"
    assert java_regex([]) == r"\A(?:(?!))\z"


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
    assert len(set(answers(spark, [None, b"", b"\x00"], "binary", bytes_hash))) == 3
    letters = answers(
        spark,
        [None, b"", b"a"],
        "binary",
        lambda key: letter_hash(key, f.array().cast(HEADERS)),
    )
    assert len(set(letters)) == 3


@pytest.mark.parametrize("name", header_names.NOT_IN_A_LETTER)
def test_what_a_dead_letter_says_anew_is_not_in_its_fingerprint(
    spark: SparkSession, name: str
) -> None:
    asked: list[Header] = [("timer-topic", b"t"), ("a", b"1")]
    cases = [asked, [*asked, (name, b"x")], [*asked, ("timer-due", b"1")]]
    same, with_name, with_due = answers(
        spark, cases, HEADERS, lambda headers: letter_hash(f.lit(b"k"), headers)
    )
    assert same == with_name != with_due
