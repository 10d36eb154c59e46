"""The Grafana dashboard is complete and readable, and uses only metrics that the proxy exports."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import promql_parser
import pytest

REPOSITORY = Path(__file__).parents[2]
BOARD: dict[str, Any] = json.loads(
    (REPOSITORY / "helm/kafka-delay-proxy/files/dashboard.json").read_text("utf-8")
)
PANELS: list[dict[str, Any]] = BOARD["panels"]
SHOWING = [panel for panel in PANELS if panel["type"] != "row"]
TITLES = [panel["title"] for panel in SHOWING]
VARIABLES = {one["name"]: one for one in BOARD["templating"]["list"]}
COLUMNS = 24
UNDESCRIBED = 40


def _expressions() -> Iterator[tuple[str, str]]:
    for panel in SHOWING:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


def _cells(panel: dict[str, Any]) -> set[tuple[int, int]]:
    at = panel["gridPos"]
    columns, lines = range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"])
    return {(x, y) for x in columns for y in lines}


def test_every_panel_has_an_id_of_its_own_and_a_title() -> None:
    ids = [panel["id"] for panel in PANELS]
    assert len(set(ids)) == len(ids)
    assert all(panel["title"] for panel in PANELS)
    assert len(set(TITLES)) == len(TITLES)


def test_no_panel_lies_on_another_or_off_the_board() -> None:
    for one, other in combinations(PANELS, 2):
        assert not _cells(one) & _cells(other), (one["title"], other["title"])
    assert all(x < COLUMNS for panel in PANELS for x, _ in _cells(panel))


def test_the_rows_ask_the_questions_of_a_night_in_their_order() -> None:
    rows = sorted((p["gridPos"]["y"], p["title"]) for p in PANELS if p["type"] == "row")
    assert [title.split(" (")[0] for _, title in rows] == [
        "Is it on time?",
        "Pending records",
        "By target",
        "Records in and out",
        "The broker, as the proxy sees it",
        "The machine",
        "Shards",
        "Audit",
    ]


@pytest.mark.parametrize("panel", SHOWING, ids=TITLES)
def test_each_panel_says_what_it_shows_and_what_is_well(panel: dict[str, Any]) -> None:
    assert len(panel["description"]) > UNDESCRIBED
    assert panel["description"].endswith(".")


def test_the_data_source_is_the_reader_s_choice_everywhere() -> None:
    asked = [panel["datasource"] for panel in SHOWING]
    asked += [target["datasource"] for panel in SHOWING for target in panel["targets"]]
    asked += [one["datasource"] for one in VARIABLES.values() if one["type"] == "query"]
    assert all(one == {"type": "prometheus", "uid": "${datasource}"} for one in asked)
    assert VARIABLES["datasource"]["type"] == "datasource"


@pytest.mark.parametrize(("title", "expression"), list(_expressions()))
def test_each_expression_can_be_read_and_names_no_variable_that_is_missing(
    title: str, expression: str
) -> None:
    names = set(re.findall(r"\$(\w+)", expression))
    assert names <= {*VARIABLES, "__rate_interval"}, title
    promql_parser.parse(expression.replace("$__rate_interval", "5m"))


def test_what_is_chosen_above_counts_in_every_expression() -> None:
    unchosen = [expr for _, expr in _expressions() if "$namespace" not in expr]
    assert all(expr.startswith("max by (alertname") for expr in unchosen)
    assert all(VARIABLES[name]["allValue"] == ".*" for name in ("namespace", "job", "instance"))
