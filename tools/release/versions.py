"""The version of a release, in each file that names it, and the release's part of the changelog."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from tools.release.findings import Fault

SOURCE: Final = "proxy/__init__.py"
CLIENT: Final = "client/kafka_delay/__init__.py"
CHART: Final = "helm/kafka-delay-proxy/Chart.yaml"
COMPOSE: Final = "compose.yaml"
CHANGELOG: Final = "CHANGELOG.md"
OURS: Final = "kafka-delay-proxy:"
ASSIGNED: Final = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)
PART: Final = re.compile(r"(?ms)^## \[([^\]]+)\](?: - \d{4}-\d\d-\d\d)?\n(.*?)(?=^## |\Z)")


def agreed(root: Path, tag: str = "") -> str:
    """Return the version that all files name. Raise Fault with each file that differs.

    If `tag` is given, it must name this version, and the changelog must have no unreleased changes.
    """
    version = _assigned(root / SOURCE)
    named = list(_named(root)) + ([("the tag", tag.removeprefix("v"))] if tag else [])
    differing = [f"{place} names {other}" for place, other in named if other != version]
    if tag and _parts(root).get("Unreleased", "").strip():
        differing.append(f"{CHANGELOG} has unreleased changes: give them a version and a date")
    if differing:
        raise Fault(f"{SOURCE} names {version}, but {'; '.join(differing)}.")
    return version


def notes(root: Path, version: str) -> str:
    """Return the changelog's section about a version."""
    return _parts(root).get(version, "").strip()


def _named(root: Path) -> Iterator[tuple[str, str]]:
    yield CLIENT, _assigned(root / CLIENT)
    chart = _loaded(root / CHART)
    yield f"{CHART} (version)", str(chart["version"])
    yield f"{CHART} (appVersion)", str(chart["appVersion"])
    for name, service in _loaded(root / COMPOSE)["services"].items():
        if (image := service.get("image", "")).startswith(OURS):
            yield f"{COMPOSE} ({name})", image.removeprefix(OURS).removesuffix("-audit")
    released = [version for version in _parts(root) if version != "Unreleased"]
    yield CHANGELOG, released[0] if released else "no version"


def _parts(root: Path) -> dict[str, str]:
    return dict(PART.findall((root / CHANGELOG).read_text("utf-8")))


def _assigned(file: Path) -> str:
    found = ASSIGNED.search(file.read_text("utf-8"))
    return found[1] if found else "no version"


def _loaded(file: Path) -> Any:
    return yaml.safe_load(file.read_text("utf-8"))
