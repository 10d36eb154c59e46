"""Results of a run as one JSON object."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, replace

from tools.benchmarks.comparison import setting_of
from tools.benchmarks.figures import Figure, figures_of
from tools.benchmarks.machine import Machine
from tools.benchmarks.scenarios.pending import Pending
from tools.benchmarks.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Report:
    date: str
    quick: bool
    machine: Machine
    options: Sequence[str]
    results: Mapping[str, object]

    @property
    def setting(self) -> str:
        """Return machine and options as one text. Reports with equal texts can be compared in
        full."""
        return setting_of(asdict(self.machine), self.options)

    @property
    def figures(self) -> list[Figure]:
        """Return the main figures. A quick run has no goals."""
        found = figures_of(self.results)
        return [replace(figure, goal="") for figure in found] if self.quick else found

    @property
    def faults(self) -> dict[str, int]:
        verdicts = {id(found): found for found in _verdicts(self.results)}.values()
        pending = self.results.get("pending")
        return {
            "early": sum(verdict.early for verdict in verdicts),
            "missing": sum(verdict.missing for verdict in verdicts),
            "duplicate": sum(verdict.duplicate for verdict in verdicts),
            "lost": pending.lost if isinstance(pending, Pending) else 0,
        }

    def to_json(self) -> str:
        content = {
            "date": self.date,
            "quick": self.quick,
            "machine": asdict(self.machine),
            "options": list(self.options),
            "faults": self.faults,
            "figures": [asdict(figure) for figure in self.figures],
            "scenarios": {name: _plain(result) for name, result in self.results.items()},
        }
        return json.dumps(_without_nan(content), indent=2)


def _verdicts(found: object) -> Iterator[Verdict]:
    if isinstance(found, Verdict):
        yield found
    elif is_dataclass(found):
        for field in fields(found):
            yield from _verdicts(getattr(found, field.name))
    elif isinstance(found, Mapping | list):
        for inner in found.values() if isinstance(found, Mapping) else found:
            yield from _verdicts(inner)


def _plain(result: object) -> object:
    return asdict(result) if is_dataclass(result) and not isinstance(result, type) else result


def _without_nan(content: object) -> object:
    if isinstance(content, dict):
        return {key: _without_nan(value) for key, value in content.items()}
    if isinstance(content, list):
        return [_without_nan(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content
