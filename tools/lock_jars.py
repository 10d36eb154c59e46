"""Renewal of `kafka-jars.lock`: `python -m tools.lock_jars` (for maintainers). It resolves the
roots like Maven and writes each jar with its SHA-256. Change a version in this file, run it, run
the tests, and commit this file and the lock file."""

import hashlib
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from jgo.maven import MavenContext

from proxy.embedded import jars
from proxy.embedded.jars import LOCK_NAME

ROOTS = (
    "org.apache.kafka:kafka_2.13:4.3.1",
    # Kafka logs through slf4j 1.7 and has no binding. The simple binding starts fastest.
    "org.slf4j:slf4j-simple:1.7.36",
)


def write_lock(
    target: Path,
    title: str,
    command: str,
    roots: Sequence[str],
    is_wanted: Callable[[str], bool] = lambda _coordinates: True,
) -> None:
    """Write the wanted jars of `roots` and their dependencies into `target`. `title` and `command`
    go into the file's header."""
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
    write_lock(
        Path(jars.__file__).with_name(LOCK_NAME),
        "The embedded broker's jars",
        "python -m tools.lock_jars",
        ROOTS,
    )


if __name__ == "__main__":
    main()
