"""An archive of the Java classes that an audit uses: each is read and verified once, not each time.

Much of a small audit is Java finding and verifying 20,000 classes among 280 jars. Java maps an
archive of them instead (class data sharing, JEP 310) where its class path is the one that the
archive was made for, which the `java` of `java_home` sees to; else it goes on without.
"""

import fcntl
import lzma
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import Final

import pyspark

from proxy.embedded.java.jar_cache import cache_folder
from spark_jobs.runtime.java_home import is_wrapped

LIST_NAME: Final = "classes.lst.xz"
"""The classes of an audit of everything: see `lock_classes`."""
MOST_KEPT: Final = 2
"""Archives; each takes 220 MB."""
MAKING: Final = ".making-"
MADE_WITHIN_S: Final = 600
FIRST_IN_SPARK: Final = "slf4j-api-*.jar"
"""What Spark's launcher puts before its other jars."""


def class_path(connectors: Sequence[Path]) -> str:
    """What Java is given to run Spark with these jars, in the launcher's order and words."""
    jars = Path(pyspark.__file__).parent / "jars"
    return ":".join([*map(str, connectors), *map(str, jars.glob(FIRST_IN_SPARK)), f"{jars}/*"])


def archive_options(home: Path, connectors: Sequence[Path]) -> list[str]:
    """Java's options to use the archive; none where it was not made."""
    archive = _archive(home, connectors)
    known = is_wrapped(home) and archive.is_file()
    return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", "-Xlog:cds=off"] if known else []


def ensure_archive(home: Path, connectors: Sequence[Path], classes: str | None = None) -> None:
    """Make the archive of `classes` (one a line; None: those of an audit) where it lacks.

    Says so, and what goes wrong, to stderr: nothing depends on it. Not for a Java of the user's
    own, nor where the cache cannot be written, nor while another process makes it.
    """
    archive = _archive(home, connectors)
    if not is_wrapped(home) or archive.is_file() or not os.access(cache_folder().parent, os.W_OK):
        return
    try:
        archive.parent.mkdir(exist_ok=True)
        with _sole_maker(archive.parent) as is_sole:
            if is_sole:
                _make(archive, home, class_path(connectors), classes or _classes_of_an_audit())
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
        print(
            f"Java's classes were not prepared: {said[-1] if said else error}. The job goes on"
            " without, and begins later: docs/audit.md#messages says what to do.",
            file=sys.stderr,
        )


def _archive(home: Path, connectors: Sequence[Path]) -> Path:
    """Named after all that Java holds an archive against: itself and the jars, as they are now."""
    spark = sorted((Path(pyspark.__file__).parent / "jars").iterdir())
    found = [(str(jar), jar.stat()) for jar in [*connectors, *spark]]
    facts = [(name, known.st_size, int(known.st_mtime)) for name, known in found]
    digest = sha256(repr((str(home), facts)).encode()).hexdigest()[:12]
    return cache_folder().parent / "classes" / f"{digest}.jsa"


def _classes_of_an_audit() -> str:
    packed = resources.files("spark_jobs.runtime").joinpath(LIST_NAME).read_bytes()
    return lzma.decompress(packed).decode()


@contextmanager
def _sole_maker(folder: Path) -> Iterator[bool]:
    """Whether nobody else makes one now."""
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def _make(archive: Path, home: Path, path: str, classes: str) -> None:
    """By a rename: whoever starts meanwhile finds none, or all of it. What was left by those who
    were killed goes, and so do the oldest others."""
    for left in archive.parent.glob(f"{MAKING}*"):
        shutil.rmtree(left, ignore_errors=True)
    print("Preparing Java's classes for Spark, once; this takes up to a minute …", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix=MAKING) as folder:
        named, made = Path(folder) / "classes.lst", Path(folder) / "made.jsa"
        named.write_text(classes, "utf-8")
        command = [
            str(home / "bin" / "java"),
            "-Xshare:dump",
            "-Xlog:disable",
            "-Xlog:all=error:stderr",
            "-Xmx1g",
            f"-XX:SharedClassListFile={named}",
            f"-XX:SharedArchiveFile={made}",
            "-cp",
            path,
        ]
        subprocess.run(command, check=True, timeout=MADE_WITHIN_S, capture_output=True, text=True)
        made.replace(archive)
    known = sorted(archive.parent.glob("*.jsa"), key=lambda one: one.stat().st_mtime)
    for old in known[:-MOST_KEPT]:
        old.unlink(missing_ok=True)
