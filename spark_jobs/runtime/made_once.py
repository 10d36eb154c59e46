"""Columns are made once.

PySpark makes a column by asking the JVM for each part of it: `f.col`, `cast`, `alias`, and before
that, what these names mean. An audit asked 7,000 times, each batch of one that goes on again, and
always for the same: a column says what to do with whatever has columns of these names. So the same
call with the same parts is answered here with the column that it made first.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final

from py4j.java_gateway import JavaObject
from pyspark.sql import SparkSession

FUNCTIONS: Final = ("org.apache.spark.sql.functions", "functions")
"""The class of the JVM whose methods make columns, by the two names that PySpark has for it."""
ANEW: Final = frozenset({"broadcast", "rand", "randn", "shuffle", "uuid"})
"""Of its methods those that give frames, and those that shall not give the same again."""
MOST: Final = 50_000
"""Answers remembered: what some ten audits ask that have nothing in common."""
LONGEST: Final = 1_000
"""Texts beyond that many characters are data, and not remembered."""


class _Column(JavaObject):  # type: ignore[misc]
    """A column in the JVM, or a list of some: what it is asked for is made once, too."""

    def __init__(self, made: JavaObject, once: _Once) -> None:
        """Nothing of JavaObject's own: that would give `made` back to the JVM a second time."""
        self._made, self._once = made, once
        self._target_id = made._target_id  # noqa: SLF001

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)
        call = self._once.made(getattr(self._made, name), self._target_id, name)
        setattr(self, name, call)
        return call


class _Once:
    """The answers of the JVM by what it was asked: by whom, for what, with which parts."""

    def __init__(self) -> None:
        self._answers: dict[Hashable, Any] = {}

    def made(self, call: Callable[..., Any], *asked: str) -> Callable[..., Any]:
        """`call`, the member of the JVM that is `asked` for, done once for the same parts."""

        def answer(*parts: Any) -> Any:
            if not _may_come_again(parts):
                return call(*parts)
            key = asked, _key(parts)
            found = self._answers.get(key)
            if found is None:
                given = call(*parts)
                found = _Column(given, self) if isinstance(given, JavaObject) else given
                if len(self._answers) >= MOST:
                    self._answers.clear()
                self._answers[key] = found
            return found

        return answer


def _may_come_again(part: Any) -> bool:
    """Not so: data, columns of one frame, variables of a lambda, and what was made of these."""
    if isinstance(part, list | tuple):
        return all(map(_may_come_again, part))
    if isinstance(part, dict):
        return all(map(_may_come_again, part.values()))
    if isinstance(part, str | bytes):
        return len(part) <= LONGEST
    return part is None or isinstance(part, bool | int | float | _Column)


def _key(part: Any) -> Hashable:
    """A column is known by its number in the JVM: no other gets it, not even a later one."""
    if isinstance(part, list | tuple):
        return tuple(map(_key, part))
    if isinstance(part, dict):
        return tuple((name, _key(value)) for name, value in part.items())
    return part._target_id if isinstance(part, _Column) else (type(part), part)  # noqa: SLF001


class _Known:
    """A class of the JVM; each member is looked up when it is first asked for."""

    def __init__(self, java_class: Any, is_made_once: Callable[[str], bool], once: _Once) -> None:
        self._java_class, self._is_made_once, self._once = java_class, is_made_once, once

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._java_class, name)
        if self._is_made_once(name):
            member = self._once.made(member, name)
        setattr(self, name, member)
        return member


def make_columns_once(session: SparkSession) -> None:
    """Let PySpark in this process find what it has made before in the JVM of `session`."""
    jvm: Any = session.sparkContext._jvm  # noqa: SLF001
    once = _Once()
    if isinstance(jvm.functions, _Known):
        return
    for name in FUNCTIONS:
        setattr(jvm, name, _Known(getattr(jvm, name), lambda asked: asked not in ANEW, once))
    jvm.PythonUtils = _Known(jvm.PythonUtils, lambda asked: asked == "toSeq", once)
    jvm.PythonSQLUtils = _Known(jvm.PythonSQLUtils, lambda _: False, once)
