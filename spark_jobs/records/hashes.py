"""Hashes and signatures as columns: fingerprints, murmur2, HMAC."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Final, NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as f

from spark_jobs.records.headers import HOP_MAC, NOT_IN_A_LETTER, PREFIX
from spark_jobs.runtime.frames import Schema

# The number that Kafka's Java client makes of a key where it chooses the partition.
#
# murmur2 with Kafka's seed, modulo the number of partitions (org.apache.kafka.clients.producer.
# internals.BuiltInPartitioner). Apache Commons' MurmurHash2, which comes with Spark, computes
# just that of a text's UTF-8 bytes: so keys that are UTF-8 go through it in half a microsecond.
# All others are hashed by expressions of Spark, which take some ten.

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


# Fingerprints of what must arrive unchanged, as column expressions: 64 bits of xxHash each; and
# that of a policy, as its key in the settings topic.
#
# xxhash64 skips nulls, so whether a value is null goes into the hash by itself.

FINGERPRINTS: Final[Schema] = {
    "key_hash": "bigint",
    "value_hash": "bigint",
    "headers_hash": "bigint",
    "letter_hash": "bigint",
}
"""Of the key at the target, of the value, of the user's headers, and of what a dead letter shows
again: the ingress record's own key and all its headers."""


def policy_digest(text: bytes) -> str:
    """The key in the settings topic of a policy's JSON."""
    return sha256(text).hexdigest()[:16]


def bytes_hash(column: Column) -> Column:
    """Of a binary column: bigint; null and empty differ."""
    return f.xxhash64(column)


def content_bytes(key: Column, value: Column, large_bytes: Column) -> Column:
    """How much key and value take: bigint. large_bytes: as RECORDS has it."""
    sizes = (f.coalesce(f.octet_length(one), f.lit(0)) for one in (key, value))
    return f.coalesce(large_bytes, sum(sizes, f.lit(0)).cast("bigint"))


def headers_bytes(headers: Column) -> Column:
    """How much these headers take, names and values: bigint."""
    values = f.transform(headers["value"], f.hex)
    names = f.octet_length(f.array_join(headers["key"], ""))
    return (names + f.octet_length(f.array_join(values, "")) / 2).cast("bigint")


def headers_hash(headers: Column) -> Column:
    """Of the user's headers among these (array of name and value), in order: bigint."""
    return plain_hash(f.filter(headers, lambda header: ~header["key"].startswith(PREFIX)))


def letter_hash(key: Column, headers: Column) -> Column:
    """Of an ingress record's key and of the headers that its dead letter must show again."""
    said_anew = f.array(*map(f.lit, NOT_IN_A_LETTER))
    shown = f.when(
        f.arrays_overlap(headers["key"], said_anew),
        f.filter(headers, lambda header: ~header["key"].isin(*NOT_IN_A_LETTER)),
    ).otherwise(headers)
    return f.xxhash64(key, key.isNull(), plain_hash(shown))


def is_bare_letter(key: Column, value: Column, headers: Column) -> Column:
    """Whether a dead letter shows nothing of its ingress record."""
    shown = f.filter(headers, lambda header: ~header["key"].isin(*NOT_IN_A_LETTER))
    return key.isNull() & value.isNull() & (f.size(shown) == 0)


def plain_hash(headers: Column) -> Column:
    """Of all these headers: bigint.

    A null value is told from none, where there may be one: such an array has no common element
    with another, and that there is none is not known either."""
    is_full = ~f.arrays_overlap(headers["value"], f.array(f.lit(b"")))
    nulls = f.transform(headers, lambda header: header["value"].isNull())
    return f.when(is_full, f.xxhash64(headers)).otherwise(f.xxhash64(headers, nulls))


# Whether the proxy itself wrote a record to the ingress: the audit's own reading of the MAC
# (docs/exactly-once.md#who-may-hop), as column expressions.
#
# HMAC-SHA256 by its definition (RFC 2104), since Spark has no more than SHA-256: the key, padded
# to a block, is known to the driver.

KEY_PREFIX: Final = "hop-key/"
"""What their records' keys in the settings topic begin with; the digest follows."""
BLOCK_BYTES: Final = 64
INNER: Final = 0x36
OUTER: Final = 0x5C
MAC_DIGITS: Final = 32
DIGEST_DIGITS: Final = 16


class HopKeys(NamedTuple):
    """Secrets by digest, and the id of the ingress topic whose records they are for."""

    topic_id: str
    secrets: Mapping[str, bytes]


def hop_key(record_key: bytes, text: bytes) -> tuple[str, bytes]:
    """Digest and secret, of a record of the settings topic; raises ValueError if it is no key."""
    secret = bytes.fromhex(text.decode())
    digest = sha256(secret).hexdigest()[:DIGEST_DIGITS]
    if record_key != f"{KEY_PREFIX}{digest}".encode():
        raise ValueError("it is another key's")
    return digest, secret


def padded(secret: bytes, pad: int) -> str:
    """The key's block for the INNER or the OUTER hash, in hexadecimal."""
    return bytes(byte ^ pad for byte in secret.ljust(BLOCK_BYTES, b"\0")).hex()


def is_own(partition: Column, key: Column, value: Column, headers: Column, by: Column) -> Column:
    """Whether a record's last header is its MAC; `by` has hop_topic_id, hop_inner and hop_outer."""
    signed = f.slice(headers, f.lit(1), f.size(headers) - 1)
    text = f.concat_ws(
        ",",
        by["hop_topic_id"],
        partition.cast("string"),
        _hex(key),
        f.coalesce(f.sha2(value, 256), f.lit("-")),
        f.flatten(f.transform(signed, lambda h: f.array(_hex(h["key"]), _hex(h["value"])))),
    )
    inner = f.sha2(f.concat(f.unhex(by["hop_inner"]), text.cast("binary")), 256)
    mac = f.sha2(f.concat(f.unhex(by["hop_outer"]), f.unhex(inner)), 256)
    last = f.element_at(headers, -1)
    said = last["value"].cast("string")
    return (last["key"] == HOP_MAC) & said.eqNullSafe(f.left(mac, f.lit(MAC_DIGITS)))


def _hex(content: Column) -> Column:
    return f.coalesce(f.lower(f.hex(content)), f.lit("-"))
