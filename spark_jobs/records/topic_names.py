"""Which topic names are legal, and patterns of names (`targets.allow`) as regular expressions.

`*`, `?` and `[...]` mean what they mean to a shell. A pattern is applied to legal names alone, so a
set of characters is written out as those legal in a name that belong to it.
"""

import re
import string
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Final

from pyspark.sql import Column

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
