"""Required distributions with their dependencies, as installed for the tests."""

import re
import tomllib
import venv
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

REPOSITORY = Path(__file__).parents[2]
OURSELVES = "kafka-delay-proxy"


def canonical(name: str) -> str:
    """Return the canonical name of a distribution (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def asked_for(*extras: str) -> Iterator[Requirement]:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
    yield from map(Requirement, project["dependencies"])
    for extra in extras:
        for requirement in map(Requirement, project["optional-dependencies"][extra]):
            if canonical(requirement.name) == OURSELVES:
                yield from asked_for(*requirement.extras)
            else:
                yield requirement


def environment_of(folder: Path, distributions: Iterable[Distribution]) -> Path:
    """Make an environment of distributions that are installed here. Return its Python."""
    venv.create(folder, with_pip=False, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for one in distributions:
        tops = {path.parts[0] for path in one.files or [] if path.parts[0] not in {"..", "/"}}
        for top in tops - {"__pycache__"}:
            if not (packages / top).exists():
                (packages / top).symlink_to(Path(str(one.locate_file(top))))
    return folder / "bin" / "python"


def closure(requirements: Iterable[Requirement]) -> dict[str, Distribution]:
    found: dict[str, Distribution] = {}
    waiting = [one for one in requirements if _counts(one, frozenset())]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        one = waiting.pop()
        name, extras = canonical(one.name), frozenset(one.extras)
        if (name, extras) not in seen:
            seen.add((name, extras))
            found[name] = distribution(name)
            needs = map(Requirement, found[name].requires or [])
            waiting += [other for other in needs if _counts(other, extras)]
    return found


def _counts(requirement: Requirement, extras: frozenset[str]) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in (*extras, ""))
