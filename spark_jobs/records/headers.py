"""Header names, and SQL over headers and topic names."""

import re
import string
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Final

# Header names, as the guide spells them. The audit has its own list, because it must not rely on
# the proxy's code. A test compares the two.

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
"""Values of `timer-transaction` in the ingress. Only the proxy writes `expire`."""

ORIGIN: Final = "timer-origin"
DUE: Final = "timer-due"
FIRST_ORIGIN: Final = "timer-first-origin"
ERROR: Final = "timer-error"
ERROR_DETAIL: Final = "timer-error-detail"
INGRESS_KEY: Final = "timer-ingress-key"
UNREADABLE: Final = "timer-unreadable"
"""This header replaces all headers of a record if clients cannot decode one of their names."""

HOP_FROM: Final = "timer-hop-from"
HOP_NOT_BEFORE: Final = "timer-hop-not-before"
HOP_RESUMED: Final = "timer-hop-resumed"
HOP_ATTEMPT: Final = "timer-hop-attempt"
HOP_FIRST: Final = "timer-hop-first"
HOP_FIRES: Final = "timer-hop-fires"
HOP_DUE: Final = "timer-hop-due"
"""Headers of a move: when the replaced record fires, and the due of that record."""
HOP_MAC: Final = "timer-hop-mac"

PURGE: Final = "timer-purge"
PURGE_FROM: Final = "timer-purge-from"
PURGE_TO: Final = "timer-purge-to"
"""Headers of a purge, which only the proxy writes: a target pattern, the first and last due."""

TIMES: Final = (DELIVER_AT, DELAY, LEVEL)
MOVES: Final = (HOP_FIRES, HOP_DUE)
HOP_NUMBERS: Final = (
    *(HOP_FROM, HOP_NOT_BEFORE, HOP_RESUMED, HOP_ATTEMPT, HOP_FIRST),
    *MOVES,
)
HOPS: Final = (*HOP_NUMBERS, HOP_MAC)
PURGES: Final = (PURGE, PURGE_FROM, PURGE_TO)
SINCE_RECALLS: Final = (RECALL, *PURGES, *MOVES)
"""Headers that a policy does not know if it is older than recalls."""
STAMPS: Final = (ORIGIN, DUE, FIRST_ORIGIN, ERROR, ERROR_DETAIL, INGRESS_KEY, CHECK)
"""Headers of deliveries and dead letters. In the ingress they request nothing."""

PLAIN_REQUESTS: Final = (TOPIC, DELIVER_AT, DELAY, LEVEL, KEY, PARTITION)
USUAL: Final = (*PLAIN_REQUESTS, ID, *(name for name in STAMPS if name != FIRST_ORIGIN))
"""Headers of a record that requests delivery, perhaps under an id, and nothing else."""
BEYOND_PLAIN: Final = (
    *(ID, CANCEL, RECALL, RETRY_GROUP, ATTEMPT, TRANSACTION, CHECK_TOPIC, CHECK_IMMUNITY),
    *HOPS,
    *PURGES,
)
KNOWN: Final = (*PLAIN_REQUESTS, *BEYOND_PLAIN, *STAMPS)

NOT_IN_A_LETTER: Final = (ERROR, ERROR_DETAIL, ORIGIN, UNREADABLE)
"""Headers of an ingress record that a dead letter replaces or omits."""


ALWAYS_READ: Final = (*PLAIN_REQUESTS, ID)
SPECIAL: Final = (*(name for name in BEYOND_PLAIN if name != ID), FIRST_ORIGIN)
HEADERS: Final = "array<struct<key:string,value:binary>>"
NO_HEADERS: Final = f"CAST(array() AS {HEADERS})"
UNREADABLE_HEADERS: Final = (
    f"array(named_struct('key', '{UNREADABLE}', 'value', CAST(NULL AS binary)))"
)
NUL: Final = r"'\0'"
NO_UTF_8: Final = r"'\ufffd'"
"""Kafka's Java client puts U+FFFD in place of bytes that are not UTF-8."""
_MACRO: Final = re.compile(r"\b(has|raw|text)\(([\w-]+)\)")


def with_headers(sql: str, places: Mapping[str, str]) -> str:
    """Replace `has(name)`, `raw(name)`, `text(name)` by the SQL in `places`. `{}` is the name."""
    return _MACRO.sub(lambda found: places[found[1]].format(found[2]), sql)


def has_any(names: Iterable[str]) -> str:
    """Return SQL for `with_headers`: whether any of the headers is there."""
    return f"({' OR '.join(f'has({name})' for name in names)})"


def as_the_proxy_reads(headers: str) -> str:
    """Return SQL of the headers as the proxy's client shows them.
    A name ends at its first NUL byte. If a name is not UTF-8, one header with a reserved name
    replaces all headers (docs/guide.md#rules-for-all-headers).
    """
    names = rf"array_join({headers}.key, '\n')"
    name = f"substring_index(one.key, {NUL}, 1)"
    cut = f"transform({headers}, one -> named_struct('key', {name}, 'value', one.value))"
    return rf"""
      CASE WHEN NOT (contains({names}, {NUL}) OR contains({names}, {NO_UTF_8})) THEN {headers}
        WHEN contains(array_join({cut}.key, '\n'), {NO_UTF_8}) THEN {UNREADABLE_HEADERS}
        ELSE {cut} END"""


def is_blurred(headers: str) -> str:
    """Return SQL: whether a header's name has U+FFFD, or bytes that Java shows as U+FFFD."""
    return rf"contains(array_join({headers}.key, '\n'), {NO_UTF_8})"


def count_of_own(headers: str) -> str:
    """Return SQL of the number of `timer-` headers. A line break in a name may add one.
    Text is counted, because Spark does not compile functions over arrays.
    """
    names = rf"concat('\n', array_join({headers}.key, '\n'))"
    others = rf"replace({names}, '\n{PREFIX}', '')"
    return f"(octet_length({names}) - octet_length({others})) / {len(PREFIX) + 1}"


def value_of(headers: str, name: str) -> str:
    """Return SQL of the value of the first header with this name; null without such a header."""
    return f"get({headers}.value, CAST(array_position({headers}.key, '{name}') - 1 AS int))"


# Topic names, and their patterns (`targets.allow`) as regular expressions. `*`, `?` and `[...]`
# mean the same as in a shell. A pattern is compared with legal names only, so a character set is
# written out as its legal members.

LEGAL_CHARACTERS: Final = string.ascii_letters + string.digits + "._-"
INTERNAL_PREFIX: Final = "__"
LEGAL_NAME: Final = r"\A[a-zA-Z0-9._-]{1,249}\z"
NEVER: Final = "(?!)"
PIECE: Final = re.compile(r"\*+|\?|\[!?+\]?+[^\]]*\]|.", re.DOTALL)


def is_legal(topic: str) -> str:
    """Return SQL of Kafka's rule for topic names."""
    return f"({topic} RLIKE R'{LEGAL_NAME}' AND {topic} NOT IN ('.', '..'))"


def java_regex(patterns: Iterable[str]) -> str:
    """Return one regular expression for the legal names that match any pattern."""
    alternatives = "|".join("".join(map(_piece, PIECE.findall(p))) for p in patterns)
    return rf"\A(?:{alternatives or NEVER})\z"


def _piece(piece: str) -> str:
    if piece[0] == "*":
        return ".*"
    if piece == "?":
        return "."
    is_set = piece[0] == "[" and len(piece) > 1
    members = [c for c in LEGAL_CHARACTERS if (fnmatchcase(c, piece) if is_set else c == piece)]
    escaped = "".join(c if c.isalnum() else "\\" + c for c in members)
    return f"[{escaped}]" if members else NEVER
