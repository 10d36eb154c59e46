"""Renew `kafka-jars.lock`: `python -m tools.lock_jars` (for maintainers).

Resolves the roots below as Maven would, and writes down every jar with its SHA-256. Change a
version here, run it, run the tests, commit both.
"""

import hashlib
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from jgo.maven import MavenContext

from proxy.embedded import jars
from proxy.embedded.jars import LOCK_NAME

ROOTS = (
    "org.apache.kafka:kafka_2.13:4.3.1",
    # Kafka logs through slf4j 1.7 and brings no binding; the simple one starts fastest.
    "org.slf4j:slf4j-simple:1.7.36",
)


def write_lock(
    target: Path,
    title: str,
    command: str,
    roots: Sequence[str],
    is_wanted: Callable[[str], bool] = lambda _coordinates: True,
) -> None:
    """Write into `target` the jars of `roots` and of all they need that `is_wanted`.

    `title` says whose they are and `command` what writes them, for whoever opens the file.
    """
    header = (
        f"# {title}: coordinates, SHA-256, size in bytes.",
        f"# Written by `{command}`; not to be edited by hand.",
    )
    with tempfile.TemporaryDirectory() as repository:
        lines = _locked_lines(Path(repository), roots, is_wanted)
    target.write_text("\n".join((*header, *lines)) + "\n", "utf-8")
    print(f"{target.name}: {len(lines)} jars")


def _locked_lines(
    repository: Path, roots: Sequence[str], is_wanted: Callable[[str], bool]
) -> list[str]:
    """One line per jar, fetched into `repository`, in order."""
    context = MavenContext(repo_cache=repository, timeout=60)
    resolved = context.resolver.resolve([context.create_dependency(root) for root in roots])
    lines = {}
    for dependency in (one for found in resolved for one in found):
        name = f"{dependency.groupId}:{dependency.artifactId}:{dependency.version}"
        if is_wanted(name):
            content = Path(dependency.artifact.resolve()).read_bytes()
            lines[name] = f"{name} {hashlib.sha256(content).hexdigest()} {len(content)}"
    return list(lines.values())


def main() -> None:
    """Write the broker's lock file."""
    write_lock(
        Path(jars.__file__).with_name(LOCK_NAME),
        "The embedded broker's jars",
        "python -m tools.lock_jars",
        ROOTS,
    )


if __name__ == "__main__":
    main()
