"""Results as JSON and as the table of docs/notes/reliability.md."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tools.benchmarks.machine import Machine
from tools.overload.performance import Performed

Content = dict[str, Any]
COLUMNS = ("load", "when, how", "records", "figures", "faults", "memory of the worker, MiB")


def content_of(date: str, command: str, scale: float, machine: Machine, it: Performed) -> Content:
    seen = {"date": date, "command": command, "scale": scale, "machine": asdict(machine)}
    return seen | asdict(it)


def read(path: Path | None) -> dict[str, Content]:
    if path is None or not path.exists():
        return {}
    scenarios: dict[str, Content] = json.loads(path.read_text("utf-8"))["scenarios"]
    return scenarios


def write(scenarios: Mapping[str, Content], path: Path) -> None:
    path.write_text(json.dumps({"scenarios": scenarios}, indent=1) + "\n", "utf-8")


def markdown(scenarios: Mapping[str, Content]) -> str:
    machines = dict.fromkeys(_machine(found["machine"]) for found in scenarios.values())
    rows = [COLUMNS, ("---",) * len(COLUMNS), *map(_row, scenarios.items())]
    return "\n".join([*machines, "", *(f"| {' | '.join(row)} |" for row in rows)])


def _machine(machine: Content) -> str:
    return (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']} GB; Kafka "
        f"{machine['kafka']}, librdkafka {machine['librdkafka']}, Python {machine['python']}"
    )


def _row(named: tuple[str, Content]) -> tuple[str, ...]:
    name, found = named
    when = f"{found['date'][:10]}, `{found['command']}`"
    sections = (found["records"], found["figures"], found["faults"], found["resident"])
    return (name, when, *(", ".join(_told(section)) for section in sections))


def _told(section: Content) -> Iterator[str]:
    for name, value in section.items():
        if value is not None:
            yield f"{name} {value:,}" if isinstance(value, int | float) else f"{name} {value}"
