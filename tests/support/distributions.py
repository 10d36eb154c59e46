"""What this project asks for, and what that asks for in turn, as installed around the tests."""

import re
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

REPOSITORY = Path(__file__).parents[2]
OURSELVES = "kafka-delay-proxy"


def canonical(name: str) -> str:
    """The one spelling of a distribution's name (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def asked_for(*extras: str) -> Iterator[Requirement]:
    """The requirements in `pyproject.toml`: always needed, and those of the extras."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
    yield from map(Requirement, project["dependencies"])
    for extra in extras:
        for requirement in map(Requirement, project["optional-dependencies"][extra]):
            if canonical(requirement.name) == OURSELVES:
                yield from asked_for(*requirement.extras)
            else:
                yield requirement


def closure(requirements: Iterable[Requirement]) -> dict[str, Distribution]:
    """By name all distributions that these requirements bring to this machine."""
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
    """Whether its marker holds here, for what was asked with these extras."""
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in (*extras, ""))
