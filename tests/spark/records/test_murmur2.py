"""Key hashes equal the Java client's."""

from pyspark.sql import SparkSession

from spark_jobs.records.hashes import key_number
from tests.support.expressions import answers

JAVA_MURMUR2 = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
"""From Kafka's own UtilsTest.testMurmur2."""


def test_murmur2_is_that_of_the_java_client(spark: SparkSession) -> None:
    hashes = answers(spark, list(JAVA_MURMUR2), "binary", key_number)
    assert hashes == [number & 0x7FFF_FFFF for number in JAVA_MURMUR2.values()]
    [partition] = answers(spark, [b"foobar"], "binary", lambda key: f"({key_number(key)}) % 7")
    assert partition == (-790332482 & 0x7FFF_FFFF) % 7


def test_murmur2_of_keys_of_any_bytes_and_length_is_as_computed_otherwise(
    spark: SparkSession,
) -> None:
    """Keys in UTF-8 and other keys are hashed by different code."""
    texts = ("", "\0", "key-1", "f\u00fcr 10 \u20ac", "\U0001f600" * 3, "\ufffd\uffff")
    keys = [
        *(
            bytes((start + 37 * n) % 256 for n in range(length))
            for start, length in enumerate(range(40))
        ),
        *(text.encode() for text in texts),
        *(text.encode() + b"\xff" for text in texts),
        b"\xed\xa0\x80",
    ]
    assert answers(spark, keys, "binary", key_number) == [
        _murmur2(key) & 0x7FFF_FFFF for key in keys
    ]


def _murmur2(key: bytes) -> int:
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
