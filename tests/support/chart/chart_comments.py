"""Keys of a YAML file, with their defaults and the comments above them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml


@dataclass(frozen=True, slots=True)
class Value:
    """Key of a values or settings file."""

    path: tuple[str, ...]
    default: str | None
    """JSON. None for a section, whose keys follow."""
    said: str
    """Lines of the comment above the key. Lines of an example keep their indentation."""


def documented(values: Path) -> Iterator[Value]:
    """Yield the keys in the order of the file. Keys without a comment belong to the key above."""
    text = values.read_text("utf-8")
    root = yaml.compose(text, yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode)
    yield from _values(root, (), text.splitlines())


def _values(node: yaml.MappingNode, path: tuple[str, ...], lines: list[str]) -> Iterator[Value]:
    for key, value in node.value:
        here = (*path, str(key.value))
        said = _comment_above(key.start_mark.line, lines)
        if isinstance(value, yaml.MappingNode) and _is_section(value, key, lines):
            yield Value(here, None, said)
            yield from _values(value, here, lines)
        else:
            default = json.dumps(yaml.safe_load(yaml.serialize(value)), ensure_ascii=False)
            yield Value(here, default, said)


def _is_section(node: yaml.MappingNode, key: yaml.Node, lines: list[str]) -> bool:
    first = int(node.value[0][0].start_mark.line) if node.value else 0
    return first > key.start_mark.line and bool(_comment_above(first, lines))


def _comment_above(line: int, lines: list[str]) -> str:
    said: list[str] = []
    while line and lines[line - 1].lstrip().startswith("#"):
        line -= 1
        said.insert(0, lines[line].strip().removeprefix("#").removeprefix(" "))
    return "\n".join(said)
