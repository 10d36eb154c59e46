"""Measurements on disk, one file each. A stored measurement is not repeated."""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tools.benchmarks.errors import BenchmarkError
from tools.benchmarks.stores.measurement import Setup
from tools.benchmarks.turns import Figures, Rounds, mean_of

Content = dict[str, Any]
TRIAL = re.compile(r"(?P<row>.+-\d+)-(?P<round>\d+)-(there|back)-(?P<kind>.+)")
"""The form of the names that `tools.benchmarks.turns` gives to measurements of a `Place`."""


class Place(NamedTuple):
    scenario: str
    body_bytes: int

    @property
    def name(self) -> str:
        return f"{self.scenario}-{self.body_bytes}"


@dataclass(frozen=True, slots=True)
class Results:
    folder: Path
    setup: Setup
    circumstances: Content

    def recall(self, trial_name: str, measure: Callable[[], Figures]) -> Figures:
        """Return the stored figures, or measure now. Raise BenchmarkError if the stored figures
        were measured with another setup."""
        path = self.folder / f"{trial_name}.json"
        if path.exists():
            content = json.loads(path.read_text())
            if content["setup"] != asdict(self.setup):
                raise BenchmarkError(
                    f"{path} was measured with {content['setup']}, not {asdict(self.setup)}: "
                    "name another folder with --results."
                )
            figures: Figures = content["figures"]
            return figures
        figures = measure()
        content = {**self.circumstances, "setup": asdict(self.setup), "figures": figures}
        path.write_text(json.dumps(content, indent=2))
        return figures


def found_in(folder: Path) -> dict[str, Content]:
    return {
        path.stem: json.loads(path.read_text())
        for path in sorted(folder.glob("*.json"))
        if TRIAL.fullmatch(path.stem)
    }


def rounds_of(found: Mapping[str, Content], place: Place) -> Rounds:
    """Return the rounds of one place in order. Kinds of store without measurements are left out."""
    rounds: dict[int, dict[str, list[Figures]]] = defaultdict(lambda: defaultdict(list))
    for number, kind, figures in _of(found, place):
        rounds[number][kind].append(figures)
    return [
        {kind: mean_of(both) for kind, both in rounds[number].items()} for number in sorted(rounds)
    ]


def _of(found: Mapping[str, Content], place: Place) -> Iterator[tuple[int, str, Figures]]:
    for name, content in found.items():
        trial = TRIAL.fullmatch(name)
        assert trial is not None
        if trial["row"] == place.name:
            yield int(trial["round"]), trial["kind"], content["figures"]
