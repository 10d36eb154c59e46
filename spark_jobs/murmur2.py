"""Kafka's murmur2 as a column expression: the partition that a Java client gives to a key.

Source: org.apache.kafka.common.utils.Utils.murmur2. All arithmetic is in bigint and cut to 32 bits
after each step; no product exceeds 63 bits, for the multiplier has 31.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as f

SEED: Final = 0x9747B28C
MULTIPLIER: Final = 0x5BD1E995
WORD_SHIFT: Final = 24
UNSIGNED: Final = 0xFFFF_FFFF
POSITIVE: Final = 0x7FFF_FFFF


def murmur2(key: Column) -> Column:
    """Of a binary column, which must not be null: bigint from 0 to 2^32 - 1."""
    size = f.octet_length(key)
    text = f.hex(key)
    words = f.when(size >= 4, f.sequence(f.lit(0), f.floor(size / 4).cast("int") - 1)).otherwise(
        f.array().cast("array<int>")
    )
    seed = f.lit(SEED).cast("bigint").bitwiseXOR(size.cast("bigint"))
    hashed = f.aggregate(
        words, seed, lambda hashed, word: _times(hashed).bitwiseXOR(_mixed(_word(text, word)))
    )
    return _finished(_with_tail(hashed, text, size))


def partition_by_key(key: Column, partitions: Column | int) -> Column:
    """The partition of a key among so many, as Java clients choose it: int."""
    return (murmur2(key).bitwiseAND(f.lit(POSITIVE)) % partitions).cast("int")


def _times(number: Column) -> Column:
    return (number * f.lit(MULTIPLIER).cast("bigint")).bitwiseAND(f.lit(UNSIGNED))


def _mixed(word: Column) -> Column:
    product = _times(word)
    return _times(product.bitwiseXOR(f.shiftright(product, WORD_SHIFT)))


def _byte(text: Column, number: Column) -> Column:
    """Byte `number` (from 0) of what `text` has in hexadecimal digits."""
    return f.conv(f.substr(text, number * 2 + 1, f.lit(2)), 16, 10).cast("bigint")


def _word(text: Column, number: Column) -> Column:
    """Four bytes, the lowest first."""
    big = f.conv(f.substr(text, number * 8 + 1, f.lit(8)), 16, 10).cast("bigint")
    return (
        f.shiftright(big, 24)
        .bitwiseOR(f.shiftright(big, 8).bitwiseAND(f.lit(0xFF00)))
        .bitwiseOR(f.shiftleft(big, 8).bitwiseAND(f.lit(0xFF_0000)))
        .bitwiseOR(f.shiftleft(big.bitwiseAND(f.lit(0xFF)), 24))
    )


def _with_tail(hashed: Column, text: Column, size: Column) -> Column:
    """One to three bytes behind the last whole word."""
    left = size % 4
    first = size - left
    low = _byte(text, first)
    middle = f.shiftleft(_byte(text, first + 1), 8)
    high = f.shiftleft(_byte(text, first + 2), 16)
    return (
        f.when(left == 0, hashed)
        .when(left == 1, _times(hashed.bitwiseXOR(low)))
        .when(left == 2, _times(hashed.bitwiseXOR(low).bitwiseXOR(middle)))
        .otherwise(_times(hashed.bitwiseXOR(low).bitwiseXOR(middle).bitwiseXOR(high)))
    )


def _finished(hashed: Column) -> Column:
    once = _times(hashed.bitwiseXOR(f.shiftright(hashed, 13)))
    return once.bitwiseXOR(f.shiftright(once, 15))
