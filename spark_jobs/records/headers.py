"""The `timer-` headers of a record, by name, as column expressions.

Of a header that is repeated the last counts: needs spark.sql.mapKeyDedupPolicy=LAST_WIN.
"""

from collections.abc import Iterable
from functools import reduce
from operator import or_
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as f

from spark_jobs.records.header_names import (
    BEYOND_PLAIN,
    FIRST_ORIGIN,
    ID,
    PLAIN_REQUESTS,
    PREFIX,
    UNREADABLE,
    USUAL,
)

ALWAYS_READ: Final = (*PLAIN_REQUESTS, ID)
READ_WHERE_SPECIAL: Final = (*(name for name in BEYOND_PLAIN if name != ID), FIRST_ORIGIN)

UNREADABLE_HEADERS: Final = (
    f"array(named_struct('key', '{UNREADABLE}', 'value', CAST(NULL AS BINARY)))"
)
NO_HEADERS: Final = "CAST(array() AS array<struct<key:string,value:binary>>)"
NUL: Final = "\0"
NO_UTF_8: Final = "\ufffd"
"""What Kafka's Java client puts in place of bytes that are no UTF-8."""


def as_the_proxy_reads(headers: Column) -> Column:
    """The headers as the proxy's client shows them (docs/guide.md#rules-for-all-headers).

    A name ends at its first NUL byte. Where one is not UTF-8, none of the headers can be read: a
    single one of a name that no record may have stands in their place.
    """
    names = f.array_join(headers["key"], "\n")
    cut = f.transform(
        headers,
        lambda one: f.struct(
            f.substring_index(one["key"], NUL, 1).alias("key"), one["value"].alias("value")
        ),
    )
    is_readable = ~f.array_join(cut["key"], "\n").contains(NO_UTF_8)
    shown = f.when(is_readable, cut).otherwise(f.expr(UNREADABLE_HEADERS))
    return f.when(names.contains(NUL) | names.contains(NO_UTF_8), shown).otherwise(headers)


def is_blurred(headers: Column) -> Column:
    """Whether a name has U+FFFD in it, or bytes in place of which Java shows that."""
    return f.array_join(headers["key"], "\n").contains(NO_UTF_8)


def by_name(headers: Column) -> Column:
    """A map of each name to its last header (name and value), in the order of the names' first."""
    return f.map_from_arrays(headers["key"], headers)


def count_of_own(headers: Column) -> Column:
    """How many of these headers begin with `timer-`, at least: a line break in a name may add one.

    Text is counted, since Spark looks into arrays by an interpreter."""
    names = f.concat(f.lit("\n"), f.array_join(headers["key"], "\n"))
    others = f.replace(names, f.lit(f"\n{PREFIX}"), f.lit(""))
    return (f.octet_length(names) - f.octet_length(others)) / f.lit(len(PREFIX) + 1)


def position_of(headers: Column, name: str) -> Column:
    """Where the first header with this name is, from 1 on; 0: it is not there."""
    return f.array_position(headers["key"], name)


def value_at(headers: Column, place: Column) -> Column:
    """The value of the header there; null for 0."""
    return f.get(headers["value"], (place - 1).cast("int"))


def special_names_in(named: Column, ours: Column) -> Column:
    """An array of the `timer-` names that ask for more than delivery under an id, known or not."""
    usual = sum((named[name].isNotNull().cast("int") for name in ALWAYS_READ), f.lit(0))
    found = f.filter(f.map_keys(named), lambda n: n.startswith(PREFIX) & ~n.isin(*USUAL))
    return f.when(usual == ours, f.array().cast("array<string>")).otherwise(found)


def request_headers(named: Column, is_special: Column) -> Column:
    """The column of a `RequestHeaders`, from a map of headers by name."""
    usual = [named[name].alias(name) for name in ALWAYS_READ]
    special = [f.when(is_special, named[name]).alias(name) for name in READ_WHERE_SPECIAL]
    return f.struct(*usual, *special)


class RequestHeaders:
    """A column with each header that asks for something, by its name: null without it."""

    def __init__(self, column: Column) -> None:
        self._column = column

    def has(self, name: str) -> Column:
        """Whether the header is there, with a null value too."""
        return self._column[name].isNotNull()

    def has_any(self, names: Iterable[str]) -> Column:
        """Whether one of these is there."""
        return reduce(or_, map(self.has, names))

    def raw(self, name: str) -> Column:
        """The value in bytes; null where it is null or the header is not there."""
        return self._column[name]["value"]

    def text(self, name: str) -> Column:
        """The value as text."""
        return self.raw(name).cast("string")
