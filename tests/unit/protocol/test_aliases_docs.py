"""The tables in docs/aliases.md contain exactly the tested rows."""

import re
from pathlib import Path

import pytest

from proxy.protocol.aliases import ALIASES
from proxy.protocol.outcomes import REASONS
from tests.unit.protocol.test_aliases_table import ROWS

DOCS = Path(__file__).parents[3] / "docs" / "aliases.md"
DOCS_ROW = re.compile(r"^\| (?P<header>.+?) \| (?P<reads>.+?) \| (?P<rule>.+?) \|$")


def _documented() -> dict[str, list[re.Match[str]]]:
    found = {}
    for section in re.split(r"^## ", DOCS.read_text("utf-8"), flags=re.MULTILINE)[1:]:
        title, _, text = section.partition("\n")
        if title in ALIASES:
            rows = [row for line in text.splitlines() if (row := DOCS_ROW.match(line))]
            found[title] = [row for row in rows if row["header"] not in {"header", "---"}]
    return found


def test_every_alias_has_its_table_in_the_docs() -> None:
    assert list(_documented()) == list(ALIASES)


@pytest.mark.parametrize("alias", ALIASES)
def test_every_row_of_the_docs_has_a_test_and_every_test_a_row(alias: str) -> None:
    rules = [row["rule"] for row in _documented()[alias]]
    assert len(rules) == len(set(rules))
    assert set(rules) == {row.rule for row in ROWS if row.alias == alias}


@pytest.mark.parametrize("alias", ALIASES)
def test_the_docs_name_the_headers_that_the_code_reads(alias: str) -> None:
    cells = {row["header"] for row in _documented()[alias] if row["header"].startswith("`")}
    assert {cell.strip("`") for cell in cells} == ALIASES[alias].headers


@pytest.mark.parametrize("alias", ALIASES)
def test_what_a_row_is_said_to_be_read_as_is_what_its_test_expects(alias: str) -> None:
    for said in _documented()[alias]:
        first = next(row for row in ROWS if (row.alias, row.rule) == (alias, said["rule"]))
        reads = re.findall(r"`([a-z-]+)`", said["reads"])
        assert all(name in first.expected for name in reads), said[0]
        assert said["reads"].startswith("refused") == (first.expected in REASONS), said[0]
