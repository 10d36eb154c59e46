"""What names in the JVM mean is asked once.

For each `f.col` of a plan py4j asks the JVM what `functions` is, then what `col` is, and only then
calls it. An audit had some 13,000 questions for the JVM; two of five were these.
"""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import SparkSession

NAMES: Final = (
    "org.apache.spark.sql.functions",
    "functions",
    "PythonUtils",
    "PythonSQLUtils",
)
"""The classes of the JVM through which PySpark makes columns."""


class _Known:
    """A class of the JVM; each member is looked up when it is first asked for."""

    def __init__(self, java_class: Any) -> None:
        self._java_class = java_class

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._java_class, name)
        setattr(self, name, member)
        return member


def remember_names(session: SparkSession) -> None:
    """Let PySpark's calls in this process find these classes as they are known here."""
    jvm = session.sparkContext._jvm  # noqa: SLF001
    for name in NAMES:
        found = getattr(jvm, name)
        if not isinstance(found, _Known):
            setattr(jvm, name, _Known(found))
