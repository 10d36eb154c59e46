"""Content as 64-bit hashes, so that a join carries no bytes. What is absent, null and empty differ.

A hash that agrees by accident (1 in 2^64) would hide an altered record; one that differs never
accuses one that is whole.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as f

OWN_PREFIX: Final = "timer-"
UNSAID: Final = ("timer-error", "timer-error-detail", "timer-origin", "timer-unreadable")
"""Headers of a dead letter that the record did not have in the ingress."""


def bytes_hash(content: Column) -> Column:
    """Of a binary column; bigint."""
    return f.xxhash64(content.isNull(), content)


def user_headers_hash(headers: Column) -> Column:
    """Of the headers that are nobody's business but the user's, in their order; bigint."""
    return _headers_hash(f.filter(headers, lambda header: ~is_own(header["key"])))


def letter_hash(key: Column, headers: Column) -> Column:
    """Of what a dead letter shows again: the ingress record's own key and its headers; bigint."""
    kept = f.filter(headers, lambda header: ~header["key"].isin(*UNSAID))
    return f.xxhash64(key.isNull(), key, _headers_hash(kept))


def is_own(name: Column) -> Column:
    """Whether a header's name is one of the protocol's; boolean."""
    return name.startswith(OWN_PREFIX)


def _headers_hash(headers: Column) -> Column:
    marked = f.transform(headers, lambda h: f.struct(h["key"], h["value"].isNull(), h["value"]))
    return f.xxhash64(f.size(headers), marked)
