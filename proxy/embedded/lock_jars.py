"""Renew `kafka-jars.lock`: `python -m proxy.embedded.lock_jars` (for maintainers).

Resolves the roots below as Maven would, and writes down every jar with its SHA-256. Change a
version here, run it, run the tests, commit both.
"""

import hashlib
import tempfile
from pathlib import Path

from jgo.maven import MavenContext

from proxy.embedded.jars import LOCK_NAME

ROOTS = (
    "org.apache.kafka:kafka_2.13:4.3.1",
    # Kafka logs through slf4j 1.7 and brings no binding; the simple one starts fastest.
    "org.slf4j:slf4j-simple:1.7.36",
)
HEADER = (
    "# The embedded broker's jars: coordinates, SHA-256, size in bytes.",
    "# Written by `python -m proxy.embedded.lock_jars`; not to be edited by hand.",
)


def locked_lines(repository: Path) -> list[str]:
    """One line per jar of `ROOTS` and all they need, fetched into `repository`, in order."""
    context = MavenContext(repo_cache=repository, timeout=60)
    roots = [context.create_dependency(root) for root in ROOTS]
    inputs, resolved = context.resolver.resolve(roots)
    lines = {}
    for dependency in (*inputs, *resolved):
        content = Path(dependency.artifact.resolve()).read_bytes()
        name = f"{dependency.groupId}:{dependency.artifactId}:{dependency.version}"
        lines[name] = f"{name} {hashlib.sha256(content).hexdigest()} {len(content)}"
    return list(lines.values())


def main() -> None:
    """Write the lock file beside this module."""
    target = Path(__file__).with_name(LOCK_NAME)
    with tempfile.TemporaryDirectory() as repository:
        lines = locked_lines(Path(repository))
    target.write_text("\n".join((*HEADER, *lines)) + "\n", "utf-8")
    print(f"{LOCK_NAME}: {len(lines)} jars")


if __name__ == "__main__":
    main()
