"""The number that Kafka's Java client makes of a key where it chooses the partition.

murmur2 with Kafka's seed, modulo the number of partitions (org.apache.kafka.clients.producer.
internals.BuiltInPartitioner). Apache Commons' MurmurHash2, which comes with Spark, computes just
that of a text's UTF-8 bytes: so keys that are UTF-8 go through it in half a microsecond. All others
are hashed by expressions of Spark, which take some ten.
"""

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as f

JAVA_CLASS: Final = "org.apache.commons.codec.digest.MurmurHash2"
SEED: Final = 0x9747_B28C
MULTIPLIER: Final = 0x5BD1_E995
LOW_32_BITS: Final = 0xFFFF_FFFF
POSITIVE: Final = 0x7FFF_FFFF
WORD_BYTES: Final = 4


def key_number(key: Column) -> Column:
    """Of a binary column: bigint from 0 to 2^31 - 1, null without a key.

    The partition is this modulo the number of partitions."""
    text = key.cast("string")
    of_text = f.reflect(f.lit(JAVA_CLASS), f.lit("hash32"), text).cast("bigint")
    number = f.when(f.is_valid_utf8(text), of_text).otherwise(_of_bytes(key))
    return f.when(key.isNotNull(), number.bitwiseAND(f.lit(POSITIVE)))


def text_key_number(text: str) -> str:
    """The same in SQL, of a key that is text (SQL); null of none, for which Java would fail."""
    of_text = f"reflect('{JAVA_CLASS}', 'hash32', {text})"
    return f"(CAST(IF({text} IS NULL, NULL, {of_text}) AS bigint) & {POSITIVE})"


def _of_bytes(key: Column) -> Column:
    """Unsigned 32 bits, as a bigint. Each step is bound to a name by a `transform` of one."""
    size = f.octet_length(key)
    hashed = f.transform(f.array(f.hex(key)), lambda digits: _all_words(digits, size))
    mixed = f.transform(hashed, lambda h: _times(_xor_shifted(h, 13)))
    return f.get(f.transform(mixed, lambda h: _xor_shifted(h, 15)), f.lit(0))


def _all_words(digits: Column, size: Column) -> Column:
    """The hash before its last mixing; `digits`: the bytes in hexadecimal."""
    whole = size - size % WORD_BYTES
    starts = f.when(whole > 0, f.sequence(f.lit(0), whole - 1, f.lit(WORD_BYTES)))
    words = f.transform(starts, lambda at: _times(_bytes_at(digits, at, WORD_BYTES)))
    mixed = f.transform(words, lambda word: _times(_xor_shifted(word, 24)))
    seed = f.lit(SEED).bitwiseXOR(size.cast("bigint"))
    hashed = f.aggregate(mixed, seed, lambda h, word: _times(h).bitwiseXOR(word))
    before_rest = f.coalesce(hashed, seed)
    rest = _bytes_at(digits, whole, WORD_BYTES - 1)
    return f.when(size == whole, before_rest).otherwise(_times(before_rest.bitwiseXOR(rest)))


def _bytes_at(digits: Column, at: Column, count: int) -> Column:
    """So many bytes from there on, if there are, as a little-endian number."""
    pairs = [f.substr(digits, (at + n) * 2 + 1, f.lit(2)) for n in reversed(range(count))]
    return f.conv(f.concat(*pairs), 16, 10).cast("bigint")


def _times(number: Column) -> Column:
    return (number * MULTIPLIER).bitwiseAND(f.lit(LOW_32_BITS))


def _xor_shifted(number: Column, bits: int) -> Column:
    return number.bitwiseXOR(f.shiftrightunsigned(number, bits))
