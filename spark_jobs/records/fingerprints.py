"""Fingerprints of what must arrive unchanged, as column expressions: 64 bits of xxHash each; and
that of a policy, as its key in the settings topic.

xxhash64 skips nulls, so whether a value is null goes into the hash by itself.
"""

from hashlib import sha256
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as f

from spark_jobs.records.header_names import NOT_IN_A_LETTER, PREFIX
from spark_jobs.runtime.frames import Schema

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
