"""Runner of promtool's test files: it evaluates rules step by step and checks the alerts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import promql_parser
import yaml

from tests.support.promql.evaluation import Evaluation, Vector
from tests.support.promql.series import NAME, Labels, Series, labels_of, read_series


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    expression: str
    for_s: float
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


def read_rules(path: Path) -> list[Rule]:
    return [
        Rule(
            one["alert"],
            one["expr"],
            seconds(one["for"]) if "for" in one else 0.0,
            one["labels"],
            one["annotations"],
        )
        for group in yaml.safe_load(path.read_text("utf-8"))["groups"]
        for one in group["rules"]
    ]


def seconds(text: str) -> float:
    return promql_parser.parse_duration(text).total_seconds()


@dataclass(slots=True)
class Alerts:
    rules: list[Rule]
    series: Series
    _active: dict[Labels, float] = field(default_factory=dict)
    _shown: set[Labels] = field(default_factory=set)

    def step(self, at_s: float) -> None:
        active: dict[Labels, float] = {}
        shown: set[Labels] = set()
        for rule in self.rules:
            for found in Evaluation(self.series, at_s).vector(rule.expression):
                alert = _alert(rule, found)
                active[alert] = self._active.get(alert, at_s)
                held = at_s - active[alert] >= rule.for_s
                shown.add(alert | {("alertstate", "firing" if held else "pending")})
        for gone in self._shown - shown:
            self.series.add(gone, at_s, None)
        for alert in shown:
            self.series.add(alert, at_s, 1.0)
        self._active, self._shown = active, shown


def _alert(rule: Rule, found: Labels) -> Labels:
    kept = {pair for pair in found if pair[0] != NAME and pair[0] not in rule.labels}
    return frozenset(kept | {*rule.labels.items(), (NAME, "ALERTS"), ("alertname", rule.name)})


class Miss(NamedTuple):
    expression: str
    eval_time: str
    found: str


def run_test(test: Mapping[str, Any], rules: list[Rule], every_s: float) -> Iterator[Miss]:
    series = read_series(test["input_series"], seconds(test["interval"]))
    alerts = Alerts(rules, series)
    at_s = 0.0
    for asked in sorted(test["promql_expr_test"], key=lambda one: seconds(one["eval_time"])):
        while at_s <= seconds(asked["eval_time"]):
            alerts.step(at_s)
            at_s += every_s
        found = Evaluation(series, seconds(asked["eval_time"])).vector(asked["expr"])
        wanted: Vector = {labels_of(one["labels"]): one["value"] for one in asked["exp_samples"]}
        if found != wanted:
            yield Miss(asked["expr"], asked["eval_time"], _shown(found))


def _shown(vector: Vector) -> str:
    found = sorted(f"{dict(sorted(labels))}: {value:g}" for labels, value in vector.items())
    return "\n".join(found) or "nothing"
