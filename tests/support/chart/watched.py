"""Prometheus queries of the alerts and the dashboard."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.promql.alerting import read_rules

CHART_FILES = Path(__file__).parents[3] / "helm/kafka-delay-proxy/files"
NAME = re.compile(r"\bdelay_proxy_\w+")
SELECTED = re.compile(r"\b(delay_proxy_\w+)\{([^}]*)\}")
EXACT = re.compile(r'(\w+)="([^"$]+)"')


def expressions() -> Iterator[str]:
    yield from (rule.expression for rule in read_rules(CHART_FILES / "alerts.yaml"))
    board = json.loads((CHART_FILES / "dashboard.json").read_text("utf-8"))
    for panel in board["panels"]:
        yield from (target["expr"] for target in panel.get("targets", []))


def series_names() -> set[str]:
    return {name for expression in expressions() for name in NAME.findall(expression)}


def selected() -> set[tuple[str, str, str]]:
    return {
        (name, label, value)
        for expression in expressions()
        for name, matchers in SELECTED.findall(expression)
        for label, value in EXACT.findall(matchers)
    }
