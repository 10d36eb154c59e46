"""Tests named in the pages exist, above all the failure matrix."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
PAGES = sorted((TESTS.parent / "docs").rglob("*.md"))
TEXT = "".join(page.read_text("utf-8") for page in PAGES)
NAMED = sorted(set(re.findall(r"`((?:unit|property|integration|faults|spark)/[^`\s]*)`", TEXT)))


@pytest.mark.parametrize("named", NAMED)
def test_a_test_that_a_page_names_exists(named: str) -> None:
    path, _, name = named.partition("::")
    found = list(TESTS.glob(path)) if "*" in path else [TESTS / path]
    assert found
    assert all(file.exists() for file in found)
    assert not name or f"def {name}(" in found[0].read_text()
