"""Headers of records, and the names of topics, as columns."""

import re
import string
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import reduce
from operator import or_
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as f

# Names of the headers that ingress records and what comes of them carry, as the guide spells
# them.
#
# The audit's own list: it must not rely on the proxy's code. A test holds both lists against each
# other.

PREFIX: Final = "timer-"

TOPIC: Final = "timer-topic"
DELIVER_AT: Final = "timer-deliver-at"
DELAY: Final = "timer-delay"
LEVEL: Final = "timer-level"
KEY: Final = "timer-key"
PARTITION: Final = "timer-partition"
ID: Final = "timer-id"
CANCEL: Final = "timer-cancel"
RECALL: Final = "timer-recall"
RETRY_GROUP: Final = "timer-retry-group"
ATTEMPT: Final = "timer-attempt"
TRANSACTION: Final = "timer-transaction"
CHECK_TOPIC: Final = "timer-check-topic"
CHECK_IMMUNITY: Final = "timer-check-immunity"
CHECK: Final = "timer-check"

PREPARE: Final = "prepare"
COMMIT: Final = "commit"
ROLLBACK: Final = "rollback"
EXPIRE: Final = "expire"
"""Values of `timer-transaction` in the ingress; the last is written by the proxy alone."""

ORIGIN: Final = "timer-origin"
DUE: Final = "timer-due"
FIRST_ORIGIN: Final = "timer-first-origin"
ERROR: Final = "timer-error"
ERROR_DETAIL: Final = "timer-error-detail"
INGRESS_KEY: Final = "timer-ingress-key"
UNREADABLE: Final = "timer-unreadable"
"""In place of headers that no client library can decode; never in a readable ingress record."""

HOP_FROM: Final = "timer-hop-from"
HOP_NOT_BEFORE: Final = "timer-hop-not-before"
HOP_RESUMED: Final = "timer-hop-resumed"
HOP_ATTEMPT: Final = "timer-hop-attempt"
HOP_FIRST: Final = "timer-hop-first"
HOP_FIRES: Final = "timer-hop-fires"
HOP_DUE: Final = "timer-hop-due"
"""On a record that is to take the place of one that waits: when that fires, and its due."""
HOP_MAC: Final = "timer-hop-mac"

PURGE: Final = "timer-purge"
PURGE_FROM: Final = "timer-purge-from"
PURGE_TO: Final = "timer-purge-to"
"""Of a record that the proxy alone writes: a pattern of targets, the first and the last due."""

TIMES: Final = (DELIVER_AT, DELAY, LEVEL)
MOVES: Final = (HOP_FIRES, HOP_DUE)
HOP_NUMBERS: Final = (
    *(HOP_FROM, HOP_NOT_BEFORE, HOP_RESUMED, HOP_ATTEMPT, HOP_FIRST),
    *MOVES,
)
HOPS: Final = (*HOP_NUMBERS, HOP_MAC)
PURGES: Final = (PURGE, PURGE_FROM, PURGE_TO)
SINCE_RECALLS: Final = (RECALL, *PURGES, *MOVES)
"""Unknown where a policy is from before there were recalls."""
STAMPS: Final = (ORIGIN, DUE, FIRST_ORIGIN, ERROR, ERROR_DETAIL, INGRESS_KEY, CHECK)
"""On records that were delivered or dead-lettered and sent in again: they ask for nothing."""

PLAIN_REQUESTS: Final = (TOPIC, DELIVER_AT, DELAY, LEVEL, KEY, PARTITION)
USUAL: Final = (*PLAIN_REQUESTS, ID, *(name for name in STAMPS if name != FIRST_ORIGIN))
"""Headers of a record that is to be delivered, perhaps under an id, and asks for no more."""
BEYOND_PLAIN: Final = (
    *(ID, CANCEL, RECALL, RETRY_GROUP, ATTEMPT, TRANSACTION, CHECK_TOPIC, CHECK_IMMUNITY),
    *HOPS,
    *PURGES,
)
"""What asks for more than plain delivery."""
KNOWN: Final = (*PLAIN_REQUESTS, *BEYOND_PLAIN, *STAMPS)

NOT_IN_A_LETTER: Final = (ERROR, ERROR_DETAIL, ORIGIN, UNREADABLE)
"""Headers of an ingress record that its dead letter says anew, or leaves out."""


# The `timer-` headers of a record, by name, as column expressions.
#
# Of a header that is repeated the last counts: needs spark.sql.mapKeyDedupPolicy=LAST_WIN.

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


# Which topic names are legal, and patterns of names (`targets.allow`) as regular expressions.
#
# `*`, `?` and `[...]` mean what they mean to a shell. A pattern is applied to legal names alone,
# so a set of characters is written out as those legal in a name that belong to it.

LEGAL_CHARACTERS: Final = string.ascii_letters + string.digits + "._-"
INTERNAL_PREFIX: Final = "__"
"""Of Kafka's own topics."""
LEGAL_NAME: Final = r"\A[a-zA-Z0-9._-]{1,249}\z"
NEVER: Final = "(?!)"
PIECE: Final = re.compile(r"\*+|\?|\[!?+\]?+[^\]]*\]|.", re.DOTALL)


def is_legal(topic: Column) -> Column:
    """Kafka's rule for names of topics."""
    return topic.rlike(LEGAL_NAME) & ~topic.isin(".", "..")


def java_regex(patterns: Iterable[str]) -> str:
    """One regular expression that finds the legal topic names which any of these matches."""
    alternatives = "|".join("".join(map(_piece, PIECE.findall(p))) for p in patterns)
    return rf"\A(?:{alternatives or NEVER})\z"


def _piece(piece: str) -> str:
    if piece[0] == "*":
        return ".*"
    if piece == "?":
        return "."
    if piece[0] == "[" and len(piece) > 1:
        return _one_of([c for c in LEGAL_CHARACTERS if fnmatchcase(c, piece)])
    return _one_of([c for c in LEGAL_CHARACTERS if c == piece])


def _one_of(characters: list[str]) -> str:
    return f"[{''.join(map(_escaped, characters))}]" if characters else NEVER


def _escaped(character: str) -> str:
    return character if character.isalnum() else "\\" + character
