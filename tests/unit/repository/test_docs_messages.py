"""Log and error texts cited in the pages exist in the code."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.support.markdown_pages import prose

REPOSITORY = Path(__file__).parents[3]
PACKAGES = ("proxy", "storage", "spark_jobs", "client")
RUNBOOK = prose(REPOSITORY / "docs/operations/runbook.md")
AUDIT = prose(REPOSITORY / "docs/audit.md")
MESSAGES = AUDIT.partition("\n## Messages\n")[2]
VIOLATIONS = prose(REPOSITORY / "docs/audit-violations.md")
DASHBOARD = (REPOSITORY / "helm/kafka-delay-proxy/files/dashboard.json").read_text("utf-8")
KAFKA_S_OWN = {"hanging", "Couldn't find leader endpoint … likely deleted already"}
CITED = re.compile(r"(?<!\*)\*([^*]+)\*(?!\*)")
PUT_IN = re.compile(r"…|\b(?:N|\d+)\b|<n>")
PUT_IN_A_VERDICT = re.compile(r"…|\b(?:[nm]|\d+)\b")
SQL = re.compile(r"\{.*?\}")
"""Part of a rule's sentence (`spark_jobs.verdicts.rules`)."""


@cache
def _texts() -> list[str]:
    found = []
    for path in (path for package in PACKAGES for path in (REPOSITORY / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = [p.value if isinstance(p, ast.Constant) else "…" for p in node.values]
                found.append("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return found


def _cited(text: str) -> list[str]:
    return sorted({" ".join(found.split()) for found in CITED.findall(text)} - KAFKA_S_OWN)


@pytest.mark.parametrize("sentence", _cited(RUNBOOK + MESSAGES))
def test_a_sentence_that_a_page_explains_is_one_that_the_program_says(sentence: str) -> None:
    pattern = re.compile(".*".join(map(re.escape, PUT_IN.split(sentence))))
    is_panel = f'"title": "{sentence}"' in DASHBOARD
    assert is_panel or any(pattern.search(text) for text in _texts())


@pytest.mark.parametrize("sentence", _cited(VIOLATIONS))
def test_a_sentence_that_a_page_explains_is_one_that_a_verdict_has(sentence: str) -> None:
    pattern = re.compile(".*".join(map(re.escape, PUT_IN_A_VERDICT.split(sentence))))
    assert any(pattern.search(SQL.sub("…", text)) for text in _texts())
