"""Figures of a campaign as Markdown for docs/notes/audit.md, as JSON, and as lines for a
terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tools.campaign.campaign import Figures
from tools.campaign.judging import MODES
from tools.campaign.operators.operator import Operator


def markdown(figures: Figures, operators: Mapping[str, Operator]) -> str:
    modes = [mode for mode in MODES if figures.clean[mode]]
    rows = [f"| fault | {' | '.join(modes)} |", f"|---|{'---|' * len(modes)}"]
    for name, operator in operators.items():
        cells = [_cell(figures, operator, mode) for mode in modes]
        rows.append(f"| {operator.says} (`{name}`) | {' | '.join(cells)} |")
    return "\n".join(rows)


def _cell(figures: Figures, operator: Operator, mode: str) -> str:
    planted = figures.planted[operator.name, mode]
    if mode in operator.unseen_in:
        return f"not seen: {operator.unseen_in[mode]}"
    caught = figures.caught[operator.name, mode]
    return str(planted) if caught == planted else f"{caught} of {planted}"


def lines(figures: Figures) -> Iterator[str]:
    for mode, count in figures.clean.items():
        planted = sum(n for (_, in_mode), n in figures.planted.items() if in_mode == mode)
        caught = sum(n for (_, in_mode), n in figures.caught.items() if in_mode == mode)
        records = figures.records[mode]
        yield f"{mode}: {count} runs without a fault ({records} records)"
        yield f"  {planted} faults, {caught} named; the others cannot be seen, or are listed below"
    yield f"said: {dict(figures.verdicts)}"
    for one in figures.wrong:
        yield (
            f"run {one.run}, {one.mode}, {one.operator}: {one.origin} is {one.said.verdict} "
            f"({one.said.detail}), not {one.expected}"
        )


def as_json(figures: Figures) -> dict[str, Any]:
    return {
        "clean": dict(figures.clean),
        "records": dict(figures.records),
        "planted": {"/".join(key): n for key, n in figures.planted.items()},
        "caught": {"/".join(key): n for key, n in figures.caught.items()},
        "verdicts": dict(figures.verdicts),
        "wrong": [one._asdict() for one in figures.wrong],
    }
