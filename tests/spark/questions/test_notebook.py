"""The example notebook runs from its first cell to its last."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest
from pyspark.sql import SparkSession

from spark_jobs.questions import questions
from spark_jobs.runtime.frames import Location

NOTEBOOK = Path(__file__).parents[3] / "examples" / "audit_questions.ipynb"
CELLS = json.loads(NOTEBOOK.read_text("utf-8"))["cells"]
CODE = [cell for cell in CELLS if cell["cell_type"] == "code"]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    shown: list[Any] = []
    mpl.use("Agg")
    monkeypatch.setattr(plt, "show", lambda: shown.append(plt.gcf()))
    yield shown
    plt.close("all")


def test_its_cells_ask_every_question_and_draw_three_pictures(
    spark: SparkSession, audited: Location, drawn: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    values: dict[str, Any] = {}
    for cell in CODE:
        exec(compile("".join(cell["source"]), cell["id"], "exec"), values)  # noqa: S102
        if "parameters" in cell["metadata"].get("tags", []):
            values |= {"PLACE": str(audited), "RECORD": {"partition": "0", "offset": "2"}}
    told = capsys.readouterr().out
    assert [one.name for one in questions().values() if one.asks not in told] == []
    assert [len(figure.axes[0].get_legend_handles_labels()[1]) for figure in drawn] == [10, 1, 4]


def test_it_is_committed_without_what_it_printed() -> None:
    assert [cell["id"] for cell in CODE if cell["outputs"] or cell["execution_count"]] == []
