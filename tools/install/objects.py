"""Comparison of a release's objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

Document = dict[str, Any]
Objects = Mapping[tuple[str, str], Document]
BY_THE_SERVER: Final = {
    "creationTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "uid",
}
HELMS_MEMORY: Final = "helm.sh/release.v1"


def released(found: Objects) -> dict[tuple[str, str], Document]:
    return {key: one for key, one in found.items() if one.get("type") != HELMS_MEMORY}


def said(found: Objects) -> dict[tuple[str, str], Document]:
    return {key: _said(one) for key, one in released(found).items()}


def _said(document: Document) -> Document:
    metadata = {k: v for k, v in document["metadata"].items() if k not in BY_THE_SERVER}
    return {**{k: v for k, v in document.items() if k != "status"}, "metadata": metadata}


def differences(wanted: object, live: object, at: str = "") -> Iterator[str]:
    """Yield the differences of `live` from `wanted`. Extra fields are allowed, and empty equals
    absent."""
    if isinstance(wanted, dict):
        inside = live if isinstance(live, dict) else {}
        for key, value in wanted.items():
            yield from differences(value, inside.get(key), f"{at}.{key}")
    elif isinstance(wanted, list) and isinstance(live, list) and len(wanted) == len(live):
        for number, (one, other) in enumerate(zip(wanted, live, strict=True)):
            yield from differences(one, other, f"{at}[{number}]")
    elif wanted != live and (wanted or live):
        yield f"{at}: {live!r} instead of {wanted!r}"
