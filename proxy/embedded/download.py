"""Fetch jars from a Maven repository into the cache, whole or not at all."""

import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from jgo.maven import MavenContext, PythonResolver
from requests import RequestException
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn
from rich.progress import Progress as Bar

from proxy.embedded.jars import CacheUnusable, Jar, JarsUnavailable

PLAIN_STEP_PERCENT = 25


class Progress:
    """Counts bytes from several threads and tells `show(done_bytes)` about each piece."""

    def __init__(self, show: Callable[[int], None]) -> None:
        self._show = show
        self._done_bytes = 0
        self._lock = threading.Lock()

    @contextmanager
    def of_file(self, _name: str, _size_bytes: int) -> Iterator[Callable[[int], None]]:
        """The shape in which jgo's resolver reports one file: gives it the counter to call."""
        yield self._add

    def _add(self, piece_bytes: int) -> None:
        with self._lock:
            self._done_bytes += piece_bytes
            self._show(self._done_bytes)


@contextmanager
def shown_progress(title: str, total_bytes: int) -> Iterator[Progress]:
    """Show on stderr how many of `total_bytes` have come, under `title`."""
    console = Console(stderr=True)
    shown = _bar if console.is_terminal else _lines
    with shown(console, title, total_bytes) as progress:
        yield progress


@contextmanager
def _bar(console: Console, title: str, total_bytes: int) -> Iterator[Progress]:
    console.print(title, highlight=False)
    columns = (TextColumn("  "), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=total_bytes)
        yield Progress(lambda done_bytes: bar.update(task, completed=done_bytes))


@contextmanager
def _lines(_console: Console, title: str, total_bytes: int) -> Iterator[Progress]:
    told_percent = 0

    def show(done_bytes: int) -> None:
        nonlocal told_percent
        percent = min(100, done_bytes * 100 // max(1, total_bytes))
        if percent - told_percent >= PLAIN_STEP_PERCENT:
            told_percent = percent - percent % PLAIN_STEP_PERCENT
            print(f"  {told_percent} %", file=sys.stderr, flush=True)

    print(title, file=sys.stderr, flush=True)
    yield Progress(show)


SILENCE_TIMEOUT_S = 60
CONNECTIONS = 4
TRIES = 3
ARRIVING = ".arriving-"


def fetch(jars: Sequence[Jar], folder: Path, name: str) -> None:
    """Fetch the `jars` of what `name` says into `folder`, showing progress on stderr.

    A jar appears in `folder` by a rename, after its SHA-256 has been found right; those that have
    arrived stay when another fails. Nobody else may work in `folder` meanwhile.
    Raises `JarsUnavailable`, `CacheUnusable`.
    """
    for abandoned in folder.glob(f"{ARRIVING}*"):
        shutil.rmtree(abandoned, ignore_errors=True)
    size_bytes = sum(jar.size_bytes for jar in jars)
    title = f"Fetching {name} ({len(jars)} jars, {size_bytes / 1e6:.0f} MB) into {folder}"
    with (
        shown_progress(title, size_bytes) as progress,
        tempfile.TemporaryDirectory(dir=folder, prefix=ARRIVING) as arriving,
        ThreadPoolExecutor(CONNECTIONS) as pool,
    ):
        context = _repository(Path(arriving), progress)
        waits = [pool.submit(_fetch_one, jar, context, folder) for jar in jars]
        try:
            for wait in waits:
                wait.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _repository(arriving: Path, progress: Progress) -> MavenContext:
    mirror = os.environ.get("MAVEN_MIRROR_URL")
    return MavenContext(
        resolver=PythonResolver(progress_callback=progress.of_file),
        repo_cache=arriving,
        remote_repos={"mirror": mirror.rstrip("/")} if mirror else None,
        timeout=SILENCE_TIMEOUT_S,
    )


def _fetch_one(jar: Jar, context: MavenContext, folder: Path) -> None:
    for tries_left in reversed(range(TRIES)):
        try:
            _fetch_once(jar, context, folder)
        except (RequestException, RuntimeError) as error:
            if not tries_left:
                raise JarsUnavailable(f"{jar.coordinates}: {error}") from error
        except OSError as error:
            raise CacheUnusable(folder, str(error)) from error
        else:
            return


def _fetch_once(jar: Jar, context: MavenContext, folder: Path) -> None:
    artifact = context.create_dependency(jar.coordinates).artifact
    if artifact.cached_path is not None:
        artifact.cached_path.unlink(missing_ok=True)
    arrived = Path(artifact.resolve())
    if not jar.is_whole(arrived.parent):
        raise JarsUnavailable(
            f"what arrived as {jar.coordinates} is not what the lock file names (SHA-256 differs)"
        )
    arrived.replace(folder / jar.file_name)
