"""Jars: what they must be (a lock file), and where they are kept (the user's cache).

The broker's are pinned beside this module; other programs keep lock files of their own.
"""

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from proxy.embedded.errors import CacheUnusable
from proxy.extras import require

LOCK_NAME = "kafka-jars.lock"


@dataclass(frozen=True, slots=True)
class Jar:
    """One locked jar: Maven coordinates `group:artifact:version`, and the bytes they stand for."""

    coordinates: str
    sha256: str
    size_bytes: int

    @property
    def file_name(self) -> str:
        """Its name in the cache, the same as in a Maven repository."""
        _, artifact, version = self.coordinates.split(":")
        return f"{artifact}-{version}.jar"

    def is_whole(self, folder: Path) -> bool:
        """Whether `folder` holds this jar with exactly the locked bytes."""
        path = folder / self.file_name
        if not path.is_file() or path.stat().st_size != self.size_bytes:
            return False
        with path.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest() == self.sha256


def locked_jars() -> tuple[Jar, ...]:
    """All jars of the broker as `kafka-jars.lock` pins them, in classpath order."""
    return jars_of(resources.files("proxy.embedded").joinpath(LOCK_NAME).read_text("utf-8"))


def jars_of(lock: str) -> tuple[Jar, ...]:
    """The jars that the text of a lock file pins, in its order."""
    rows = [line.split() for line in lock.splitlines() if line and not line.startswith("#")]
    return tuple(Jar(coordinates, sha256, int(size)) for coordinates, sha256, size in rows)


def kafka_version() -> str:
    """The version of Kafka the lock file pins, e.g. `4.3.1`."""
    return next(
        jar.coordinates.rpartition(":")[2]
        for jar in locked_jars()
        if jar.coordinates.startswith("org.apache.kafka:kafka_2.13:")
    )


def cache_folder() -> Path:
    """Where this user's jars are kept: `$XDG_CACHE_HOME` or `~/.cache`, then our own name."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    above = Path(named) if Path(named).is_absolute() else Path("~/.cache").expanduser()
    return above / "kafka-delay-proxy" / "jars"


def ensure_jars() -> list[Path]:
    """The classpath of the broker; see `ensure_all`."""
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
