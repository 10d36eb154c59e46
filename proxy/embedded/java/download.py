"""Fetch jars from a Maven repository into the cache, whole or not at all."""

import os
import shutil
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from jgo.maven import MavenContext, PythonResolver
from requests import RequestException

from proxy.embedded.java.errors import CacheUnusable, JarsUnavailable
from proxy.embedded.java.locked_jars import Jar
from proxy.embedded.java.progress import Progress, shown_progress

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
