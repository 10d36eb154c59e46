"""Alerts fire and stay silent as they must, each with its text and its runbook.

The cases in `tests/chart/alerts` are promtool test files. Our own evaluator runs them. If promtool
is installed, it must agree.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.markdown_pages import anchors
from tests.support.promql.alerting import Miss, Rule, read_rules, run_test, seconds
from tests.support.promql.series import labels_of

REPOSITORY = Path(__file__).parents[2]
RULES = REPOSITORY / "helm/kafka-delay-proxy/files/alerts.yaml"
RUNBOOK = REPOSITORY / "docs/operations/runbook.md"
FILES = sorted((Path(__file__).parent / "alerts").glob("*.yaml"))
NEVER_S, AT_ONCE_S = 30 * 86_400.0, 0.0
PROMTOOL = shutil.which("promtool")

Test = Mapping[str, Any]


@cache
def _tests(path: Path) -> tuple[float, list[Test]]:
    read = yaml.safe_load(path.read_text("utf-8"))
    return seconds(read["evaluation_interval"]), read["tests"]


CASES = [(path, test) for path in FILES for test in _tests(path)[1]]
NAMES = [test["name"] for _, test in CASES]
NAMED = [rule.name for rule in read_rules(RULES)]


def _failing(path: Path, test: Test, rules: list[Rule]) -> list[Miss]:
    asked = {name for name, _ in _asked(test)}
    return list(run_test(test, [rule for rule in rules if rule.name in asked], _tests(path)[0]))


def _asked(test: Test) -> Iterator[tuple[str, list[Mapping[str, Any]]]]:
    for one in test["promql_expr_test"]:
        alert = dict(labels_of(one["expr"]))["alertname"]
        yield alert, one["exp_samples"]


@pytest.mark.parametrize(("path", "test"), CASES, ids=NAMES)
def test_each_case_is_as_its_name_says(path: Path, test: Test) -> None:
    assert not _failing(path, test, read_rules(RULES))


@pytest.mark.parametrize("alert", NAMED)
def test_each_alert_has_a_case_in_which_it_fires_and_one_in_which_it_is_silent(alert: str) -> None:
    asked = [samples for _, test in CASES for name, samples in _asked(test) if name == alert]
    assert any(asked)
    assert not all(asked)
    assert any(name.startswith(f"{alert} fires") for name in NAMES)


@pytest.mark.parametrize("alert", NAMED)
def test_alert_that_never_fires_is_noticed_by_its_cases(alert: str) -> None:
    rules = [_held(rule, NEVER_S) if rule.name == alert else rule for rule in read_rules(RULES)]
    cases = [case for case in CASES if case[1]["name"].startswith(f"{alert} fires")]
    assert any(_failing(path, test, rules) for path, test in cases)


@pytest.mark.parametrize("rule", read_rules(RULES), ids=NAMED)
def test_each_alert_says_what_it_is_and_where_to_read_on(rule: Rule) -> None:
    assert rule.labels["severity"] in {"critical", "warning"}
    assert set(rule.annotations) == {"summary", "description", "runbook_url"}
    assert len(re.findall(r"[.:] [A-Z]", rule.annotations["description"])) > 0
    page, _, anchor = rule.annotations["runbook_url"].partition("#")
    assert anchor in anchors(REPOSITORY / page)
    assert anchor == rule.name.lower()


@pytest.mark.parametrize("alert", NAMED)
def test_the_runbook_of_each_alert_says_what_it_means_where_to_look_and_what_to_do(
    alert: str,
) -> None:
    _, _, behind = RUNBOOK.read_text("utf-8").partition(f"\n### {alert}\n")
    entry, _, _ = behind.partition("\n#")
    assert set(re.findall(r"\*\*(\w+)\*\*", entry)) >= {"Means", "Look", "Do", "Over"}


@pytest.mark.parametrize("alert", NAMED)
def test_a_link_of_an_older_alert_leads_on_to_its_runbook(alert: str) -> None:
    """Before the operations page was split, its anchors were the runbooks."""
    page = REPOSITORY / "docs/operations.md"
    assert alert.lower() in anchors(page)
    leads_on = f"### [{alert}](operations/runbook.md#{alert.lower()})\n"
    assert leads_on in page.read_text("utf-8")


@pytest.mark.parametrize("rule", read_rules(RULES), ids=NAMED)
def test_the_words_of_an_alert_name_only_labels_that_it_has(rule: Rule) -> None:
    text = " ".join(rule.annotations.values())
    named = set(re.findall(r"\$labels\.(\w+)", text))
    for _, test in CASES:
        for name, samples in _asked(test):
            for sample in samples if name == rule.name else []:
                assert named <= set(dict(labels_of(sample["labels"])))


def test_every_alert_stands_in_the_first_list_of_the_runbook() -> None:
    runbook = RUNBOOK.read_text("utf-8")
    assert re.findall(r"^- \[(DelayProxy\w+)\]", runbook, re.MULTILINE) == NAMED


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")
@pytest.mark.parametrize("held_s", [None, NEVER_S, AT_ONCE_S], ids=["as is", "never", "at once"])
def test_promtool_says_of_every_case_what_our_evaluator_says(
    held_s: float | None, tmp_path: Path
) -> None:
    """Run the real rules, and two kinds of broken rules."""
    rules = [rule if held_s is None else _held(rule, held_s) for rule in read_rules(RULES)]
    _write_for_promtool(rules, tmp_path)
    missed = 0
    for path in FILES:
        misses = [miss for test in _tests(path)[1] for miss in _failing(path, test, rules)]
        ours = sorted((miss.expression, seconds(miss.eval_time)) for miss in misses)
        assert _failing_in_promtool(tmp_path / path.name) == ours, path.name
        missed += len(ours)
    assert bool(missed) is (held_s is not None)


def _held(rule: Rule, for_s: float) -> Rule:
    return replace(rule, for_s=for_s)


def _write_for_promtool(rules: list[Rule], folder: Path) -> None:
    told = [
        {"alert": r.name, "expr": r.expression, "for": f"{r.for_s:.0f}s", "labels": dict(r.labels)}
        for r in rules
    ]
    groups = {"groups": [{"name": "all", "rules": told}]}
    (folder / "rules.yaml").write_text(yaml.safe_dump(groups), "utf-8")
    for path in FILES:
        text = path.read_text("utf-8")
        text = re.sub(r"^rule_files: .*$", "rule_files: [rules.yaml]", text, flags=re.MULTILINE)
        (folder / path.name).write_text(text, "utf-8")


def _failing_in_promtool(path: Path) -> list[tuple[str, float]]:
    assert PROMTOOL is not None
    said = subprocess.run(
        [PROMTOOL, "test", "rules", path.name],
        cwd=path.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    text = said.stdout + said.stderr
    found = re.findall(r"^\s*expr: (\".*\"), time: (\w+),", text, re.MULTILINE)
    assert bool(found) is bool(said.returncode), text
    return sorted((json.loads(expression), seconds(at)) for expression, at in found)
