"""The page "Where to change what" names existing files, and is linked from the entry pages."""

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
PAGE = REPOSITORY / "docs" / "where-to-change-what.md"
NAME = re.compile(r"`((?:\w[\w.-]*/)*)([\w-]+(?:\.\w+)+)`")
KINDS = (".py", ".md", ".yaml", ".yml", ".toml", ".js", ".j2", ".json", ".tpl", ".sql", ".ipynb")


def _named() -> set[str]:
    """Return the named files. A name without a folder is in the last folder, or at the top."""
    found, folder = set(), ""
    for match in NAME.finditer(PAGE.read_text("utf-8")):
        own, name = match.groups()
        if not name.endswith(KINDS):
            continue
        if not own and (REPOSITORY / name).is_file():
            found.add(name)
            continue
        folder = own or folder
        found.add(folder + name)
    return found


NAMED = sorted(_named())
CHANGES = (
    "header", "stamp", "outcome", "dead letters", "verdict", "store", "setting", "admin call",
    "metric with an alert", "command",
)  # fmt: skip


@pytest.mark.parametrize("named", NAMED)
def test_each_file_that_the_page_names_exists(named: str) -> None:
    assert (REPOSITORY / named).is_file()


@pytest.mark.parametrize("change", CHANGES)
def test_each_usual_change_has_its_part_with_files_of_product_docs_and_tests(change: str) -> None:
    parts = re.split(r"^## ", PAGE.read_text("utf-8"), flags=re.MULTILINE)
    found = [part for part in parts[1:] if change in part.partition("\n")[0]]
    assert found
    assert all(
        "`tests/" in part and "docs/" in part for part in found if "setting that" not in part
    )


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_the_page_is_found_where_people_begin(page: str) -> None:
    assert "where-to-change-what.md" in (REPOSITORY / page).read_text("utf-8")
