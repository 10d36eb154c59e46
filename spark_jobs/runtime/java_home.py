"""The Java that runs Spark: the user's own where it can, else the one that comes as a package.

Spark's launcher always adds a module that the packaged runtime does not have. A folder in the
user's cache holds a `bin/java` that leaves the module out (docs/audit.md#what-it-needs).
`python -m spark_jobs.java_home` prints the folder, for `spark-submit`.
"""

import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

from proxy.embedded.jar_cache import cache_folder, java
from proxy.embedded.jars import JavaMissing
from proxy.extras import ExtraMissing
from spark_jobs.runtime.errors import SparkUnusable

MODULE: Final = "--add-modules=jdk.incubator.vector"
VERSIONS: Final = frozenset({"17", "21"})
"""What Spark 4.0 runs on."""
ASK_TIMEOUT_S: Final = 30


def java_home(environment: Mapping[str, str] = os.environ) -> Path:
    """The folder to name in JAVA_HOME before Spark starts.

    The one that is named already, when it is a Java 17 or 21 that Spark can start. Raises
    `SparkUnusable` when there is no Java at all.
    """
    named = environment.get("JAVA_HOME", "")
    if named and _serves(Path(named)):
        return Path(named)
    try:
        return _wrapped(java(), cache_folder().parent)
    except (ExtraMissing, JavaMissing) as missing:
        raise SparkUnusable(missing.found, missing.remedy) from missing
    except OSError as error:
        raise SparkUnusable(
            f"The cache folder {cache_folder().parent} cannot be used: {error}.",
            "Make it writable, name another in XDG_CACHE_HOME, or a Java 17 or 21 in JAVA_HOME.",
        ) from error


def _serves(home: Path) -> bool:
    """Whether its `java` starts as Spark's launcher starts it, and is of a version for Spark."""
    try:
        asked = subprocess.run(
            [str(home / "bin" / "java"), MODULE, "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ASK_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    version = re.search(r'version "(\d+)', asked.stderr)
    return version is not None and version[1] in VERSIONS


def _wrapped(program: Path, cache: Path) -> Path:
    """Return a folder whose `bin/java` starts `program` without the module."""
    script = (
        f'#!/bin/sh\nfor one do shift; [ "$one" = {MODULE} ] || set -- "$@" "$one"; done\n'
        f'exec {shlex.quote(str(program))} "$@"\n'
    )
    home = cache / f"java-{sha256(script.encode()).hexdigest()[:12]}"
    wrapper = home / "bin" / "java"
    if not _is_whole(wrapper, script):
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        _write_program(wrapper, script)
    return home


def _is_whole(wrapper: Path, script: str) -> bool:
    return os.access(wrapper, os.X_OK) and wrapper.read_text("utf-8") == script


def _write_program(wrapper: Path, script: str) -> None:
    """By a rename, so that others who start meanwhile find the old file or the new one."""
    number, name = tempfile.mkstemp(dir=wrapper.parent, prefix=".java-", text=True)
    with os.fdopen(number, "w", encoding="utf-8") as arriving:
        arriving.write(script)
    Path(name).chmod(0o755)
    Path(name).replace(wrapper)
