"""README of the chart: description, installation, and a table of values."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

HEAD: Final = """\
# kafka-delay-proxy

Delayed and scheduled delivery for Kafka, exactly once, beside the broker. For Kubernetes 1.25 or
newer.

```console
$ helm install delay-proxy helm/kafka-delay-proxy \\
    --set 'config.kafka.bootstrap\\.servers=kafka:9092' --set image.repository=REGISTRY/IMAGE
```

How to install, upgrade and look after it:
[docs/operations/kubernetes.md](../../docs/operations/kubernetes.md). The images are built from this
repository; no public registry has them.

Unknown keys are refused. This file is made from the comments of [values.yaml](values.yaml) by
`make chart`.

| value | default | |
|---|---|---|
"""


@dataclass(frozen=True, slots=True)
class Value:
    """Key of the values: path, default as YAML, and description. `default` is None for a section,
    whose keys follow."""

    path: tuple[str, ...]
    default: str | None
    said: str


def readme(values: Path) -> str:
    return HEAD + "".join(map(_row, documented(values)))


def documented(values: Path) -> Iterator[Value]:
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
        said.insert(0, lines[line].lstrip().removeprefix("#").strip())
    return " ".join(said)


def _row(value: Value) -> str:
    name = ".".join(f'"{part}"' if "." in part else part for part in value.path)
    default = "" if value.default is None else f"`{_cell(value.default)}`"
    return f"| `{name}` | {default} | {_cell(value.said)} |\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
