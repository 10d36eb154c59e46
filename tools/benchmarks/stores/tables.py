"""Result table with a row for each scenario, body size and kind of store."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from rich.table import Table

from tools.benchmarks.stores.kinds import KINDS, YARDSTICK
from tools.benchmarks.stores.results import Place, rounds_of
from tools.benchmarks.stores.scenarios import SCENARIOS
from tools.benchmarks.turns import Rounds, ratios, told

Found = Mapping[str, Any]
HEAD = ("dues", "body, B", "records", "store")
COLUMNS = {
    "append, CPU us": "append_cpu_us",
    "append, loop us": "append_loop_us",
    "append, longest ms": "append_longest_ms",
    "cancel, CPU us": "cancel_cpu_us",
    "due, CPU us": "due_cpu_us",
    "due, loop us": "due_loop_us",
    "due, longest ms": "due_longest_ms",
    "written / put": "written_per_put",
    "read, B": "due_read_bytes",
    "disk, B": "disk_bytes",
    "open, ms": "open_ms",
    "memory, MB": "memory_mb",
}
AGAINST = "CPU / wheel"
WIDTH = 190
"""Width of the table on a terminal."""


@dataclass(frozen=True, slots=True)
class Row:
    place: Place
    cells: tuple[str, ...]


def rows(found: Found) -> Iterator[Row]:
    for scenario in SCENARIOS.values():
        for body_bytes in scenario.bodies_bytes:
            place = Place(scenario.name, body_bytes)
            rounds = rounds_of(found, place)
            for kind in KINDS:
                if any(kind in of for of in rounds):
                    yield Row(place, _cells(place, kind, rounds))


def shown(found: Found) -> Table:
    table = Table(*HEAD[:2], title=_circumstances(found))
    for column in (*HEAD[2:], *COLUMNS, AGAINST):
        table.add_column(column, justify="left" if column == "store" else "right")
    last = None
    for row in rows(found):
        if last not in {None, row.place}:
            table.add_section()
        table.add_row(*row.cells)
        last = row.place
    return table


def markdown(found: Found) -> str:
    heads = (*HEAD, *COLUMNS, AGAINST)
    lines = [_circumstances(found), "", f"| {' | '.join(heads)} |"]
    lines.append("|---|---:|---:|---|" + "---:|" * (len(COLUMNS) + 1))
    lines += [f"| {' | '.join(row.cells)} |" for row in rows(found)]
    return "\n".join(lines)


def _cells(place: Place, kind: str, rounds: Rounds) -> tuple[str, ...]:
    own = [of[kind] for of in rounds if kind in of]
    head = (
        SCENARIOS[place.scenario].title,
        f"{place.body_bytes:,}",
        f"{own[0]['records']:,.0f}",
        KINDS[kind].title,
    )
    values = tuple(
        _number(median(figures[name] for figures in own)) if name in own[0] else ""
        for name in COLUMNS.values()
    )
    return (*head, *values, _against(kind, rounds))


def _against(kind: str, rounds: Rounds) -> str:
    both = [of for of in rounds if kind in of and YARDSTICK in of]
    if kind == YARDSTICK or not both:
        return ""
    against = ratios(both, kind, YARDSTICK, "life_cpu_us")
    return told(against) if len(both) > 1 else f"{against[0]:.2f}"


def _number(value: float) -> str:
    decimals = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{decimals}f}"


def _circumstances(found: Found) -> str:
    dates = sorted(one["date"] for one in found.values())
    machines = {json.dumps(one["machine"]) for one in found.values()}
    setups = {json.dumps(one["setup"]) for one in found.values()}
    lines = [f"{dates[0]} to {dates[-1]}"] if dates else ["Nothing was measured."]
    for machine in map(json.loads, sorted(machines)):
        versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
        lines.append(
            f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']} GB, "
            f"{machine['system']}; Python {machine['python']}, {versions}"
        )
    lines += [f"scale {one['scale']}, {one['targets']} targets" for one in map(json.loads, setups)]
    return "; ".join(lines)
