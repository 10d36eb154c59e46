"""Tables of docs/comparison.md, from the results of any number of runs."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

Content = dict[str, Any]
Measured = Mapping[str, Mapping[str, Content]]
"""Content of the result files by peer, then by scenario."""

YARDSTICK = "relay"
NOT_MEASURED = "-"
QUANTILES = {"p50_ms": "p50", "p99_ms": "p99", "p999_ms": "p99.9", "max_ms": "max"}
FAULTS = {"early": "early", "missing": "missing", "duplicate": "twice"}


@dataclass(frozen=True, slots=True)
class Figure:
    """Row of the table. `place` is the scenario and the keys that lead to the value in its result.
    `most_wins` says whether the highest value is the best. It is None for a figure that does not
    rate the peer."""

    name: str
    place: tuple[str, ...]
    most_wins: bool | None = False


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of every peer, None if it was not measured. `faulty` peers lost or duplicated a
    record, or delivered a record early."""

    name: str
    values: Mapping[str, float | None]
    most_wins: bool | None = False
    faulty: frozenset[str] = frozenset()

    def winners(self) -> set[str]:
        """Return the faultless peers with the best value, without the yardstick. If all values are
        equal, return no peer."""
        measured = {
            name: value
            for name, value in self.values.items()
            if name != YARDSTICK and value is not None
        }
        played = [value for name, value in measured.items() if name not in self.faulty]
        if self.most_wins is None or not played or len(set(measured.values())) < 2:
            return set()
        best = max(played) if self.most_wins else min(played)
        return {n for n, value in measured.items() if value == best and n not in self.faulty}


HELD_AND_RATES = (
    Figure("held, records/s (p99 within 500 ms)", ("streams", "held_per_s", "500"), True),
    Figure("held, records/s (p99 within 2 s)", ("streams", "held_per_s", "2000"), True),
    Figure("burst, records/s", ("burst", "records_per_s"), True),
    Figure("burst, first record, ms", ("burst", "first_ms")),
)
PENDING = (
    Figure("ingest, records/s", ("pending", "taken_per_s"), True),
    Figure("anonymous memory, scheduler, MB", ("pending", "anonymous_mb", "scheduler")),
    Figure("anonymous memory, with its broker, MB", ("pending", "anonymous_mb", "all")),
    Figure("RSS, scheduler, MB", ("pending", "resident_mb", "scheduler")),
    Figure("RSS, with its broker, MB", ("pending", "resident_mb", "all")),
    Figure("a clean stop takes, s", ("pending", "clean", "stop_s")),
    Figure("first delivery after it, s", ("pending", "clean", "first_delivery_s")),
    Figure("twice over it", ("pending", "clean", "verdict", "duplicate")),
    Figure("first delivery after SIGKILL, s", ("pending", "killed", "first_delivery_s")),
    Figure("twice over it (SIGKILL)", ("pending", "killed", "verdict", "duplicate")),
)


def render(results: Path, titles: Mapping[str, str]) -> str:
    measured = _measured(results, titles)
    if not measured:
        return f"No results in {results}."
    shown = {name: title for name, title in titles.items() if name in measured}
    lines = [*_head(measured, shown), "", f"| | {' | '.join(shown.values())} |"]
    lines.append("|---|" + "---:|" * len(shown))
    lines += [_line(row, shown) for row in _rows(measured)]
    return "\n".join(lines)


def _measured(results: Path, titles: Mapping[str, str]) -> Measured:
    measured: dict[str, dict[str, Content]] = {}
    for path in sorted(results.glob("*.*.json")):
        name, scenario, _ = path.name.split(".")
        if name in titles:
            measured.setdefault(name, {})[scenario] = json.loads(path.read_text())
    return measured


def _head(measured: Measured, shown: Mapping[str, str]) -> Iterator[str]:
    every = [one for found in measured.values() for one in found.values()]
    dates = sorted(one["date"] for one in every)
    for text in sorted({json.dumps(one["machine"], sort_keys=True) for one in every}):
        machine = json.loads(text)
        yield (
            f"{dates[0]} to {dates[-1]}; {machine['cpu']}, {machine['cores']} cores, "
            f"{machine['memory_gb']} GB, {machine['system']}; Kafka {machine['kafka']}, "
            f"librdkafka {machine['librdkafka']}, Python {machine['python']}."
        )
    versions = {name: one["version"] for name in shown for one in measured[name].values()}
    yield f"Versions: {'; '.join(f'{shown[name]}: {versions[name]}' for name in shown)}."
    if any(one["quick"] for one in every):
        yield "A quick run: it only checks that the command works. Its figures prove nothing."


def _rows(measured: Measured) -> Iterator[Row]:
    figures = [*_late("light", ("light",))]
    for rate in sorted(_rates(measured), key=int):
        figures += _late(f"{int(rate):,}/s", ("streams", "by_rate", rate))
    for figure in (*figures, *HELD_AND_RATES, *PENDING):
        values = {name: _value(found, figure.place) for name, found in measured.items()}
        faulty = frozenset(name for name in measured if _is_faulty(measured[name], figure.place))
        yield Row(figure.name, values, figure.most_wins, faulty)
    for fault, told in FAULTS.items():
        counted = {name: float(sum(_faults(found, fault))) for name, found in measured.items()}
        yield Row(f"{told}, in all of it", counted)


def _rates(measured: Measured) -> set[str]:
    streams = (found["streams"] for found in measured.values() if "streams" in found)
    return {rate for one in streams for rate in one["found"]["by_rate"]}


def _late(name: str, place: tuple[str, ...]) -> Iterator[Figure]:
    for key, quantile in QUANTILES.items():
        yield Figure(f"{name}: {quantile}, ms late", (*place, "lateness", key))
    yield Figure(f"{name}: CPU, us a record", (*place, "served_us"))
    yield Figure(f"{name}: others, cores", (*place, "other_cores"), most_wins=None)


def _value(found: Mapping[str, Content], place: tuple[str, ...]) -> float | None:
    scenario, *keys = place
    inside: Any = found.get(scenario, {}).get("found")
    value: float | None = reduce(lambda content, key: content and content.get(key), keys, inside)
    return None if value is None or math.isnan(value) else value


def _is_faulty(found: Mapping[str, Content], place: tuple[str, ...]) -> bool:
    scenario, *keys = place
    inside: Any = found.get(scenario, {}).get("found")
    for key in keys:
        if not isinstance(inside, dict):
            return False
        if any(sum(_faults(inside.get("verdict"), fault)) for fault in FAULTS):
            return True
        inside = inside.get(key)
    return False


def _faults(found: object, fault: str) -> Iterator[int]:
    if isinstance(found, dict):
        if isinstance(counted := found.get(fault), int):
            yield counted
        for inner in found.values():
            yield from _faults(inner, fault)


def _line(row: Row, shown: Mapping[str, str]) -> str:
    winners = row.winners()
    cells = [_cell(row.values.get(name), name in winners) for name in shown]
    return f"| {row.name} | {' | '.join(cells)} |"


def _cell(value: float | None, is_best: bool) -> str:
    if value is None:
        return NOT_MEASURED
    text = f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:g}"
    return f"**{text}**" if is_best else text
