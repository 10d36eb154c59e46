"""How rules are written down: SQL over the columns of a record's history, the first that holds."""

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

VALUE: Final = re.compile(r"\{(.*?)\}", re.DOTALL)


class Rule(NamedTuple):
    """Where `holds` (SQL), the verdict is this; `detail` is the `sentence` for a person.

    No verdict: the name of the record's outcome is the verdict.
    """

    verdict: str | None
    holds: str
    detail: str = ""


def ruling(rules: Iterable[Rule]) -> str:
    """SQL of the struct of verdict and detail by the first of the rules that holds."""
    return f"CASE {' '.join(map(_when, rules))} END"


def sentence(text: str) -> str:
    """SQL of a text in which each `{sql}` stands for a value; null for an empty text."""
    literal, *more = VALUE.split(text)
    if more[1:] == [""] and not literal:
        return f"CAST({more[0]} AS string)"
    parts = [_quoted(literal)]
    for value, after in zip(more[::2], more[1::2], strict=True):
        parts += [f"coalesce(CAST({value} AS string), 'nothing')", _quoted(after)]
    return f"concat({', '.join(parts)})" if text else "CAST(NULL AS string)"


def differences(pairs: Mapping[str, tuple[str, str]]) -> str:
    """SQL of the names of those pairs that differ, apart by commas; empty if none does."""
    parts = [f"IF({one} <=> {other}, NULL, '{name}')" for name, (one, other) in pairs.items()]
    return f"concat_ws(', ', {', '.join(parts)})"


def names(of: Iterable[str]) -> str:
    """The names as SQL has them behind IN."""
    return f"({', '.join(map(_quoted, of))})"


def _when(rule: Rule) -> str:
    verdict = _quoted(rule.verdict) if rule.verdict else "replace(outcome.end, '-', '_')"
    found = f"named_struct('verdict', {verdict}, 'detail', {sentence(rule.detail)})"
    return f"WHEN {rule.holds} THEN {found}"


def _quoted(text: str) -> str:
    assert not {"'", "\\"} & {*text}, "a text in a rule has neither quotes nor backslashes"
    return f"'{text}'"
