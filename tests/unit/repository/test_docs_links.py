"""Links of pages and page names in files are valid."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.markdown_pages import anchors, is_there, links

REPOSITORY = Path(__file__).parents[3]
ELSEWHERE = re.compile(r"[a-z][a-z+.-]*:")
CITED = re.compile(r"(?<![\w./-])((?:docs/|storage/)[\w/-]+\.md)(?:#([\w-]*\w))?")
"""A page by its path from the root, as comments and messages name it."""
OLD_ANCHORS = [
    "runbooks", "starting", "settings", "topics", "with-helm", "sizing", "seen-from-outside",
    "audit", "procedures", "upgrade", "stopping-for-maintenance", "scaling", "moving-a-shard",
    "what-to-back-up", "restoring-after-disk-loss", "clock-trouble", "poison-messages",
    "draining-a-target", "what-can-happen-and-what-to-do",
]  # fmt: skip
"""Sections of docs/operations.md before it was split. Others may link to them."""


def _committed() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],  # noqa: S607
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        return list(REPOSITORY.rglob("docs/**/*.md"))
    return [
        path for name in listed.stdout.split("\0") if name and (path := REPOSITORY / name).is_file()
    ]


FILES = _committed()
PAGES = [path for path in FILES if path.suffix == ".md"]


def _names(paths: list[Path]) -> list[str]:
    return [str(path.relative_to(REPOSITORY)) for path in paths]


def _cited(path: Path) -> Iterator[tuple[str, str]]:
    yield from CITED.findall(path.read_text("utf-8", errors="replace"))


@pytest.mark.parametrize("page", PAGES, ids=_names(PAGES))
def test_every_link_within_the_repository_leads_to_a_file_and_a_heading(page: Path) -> None:
    broken = []
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not ELSEWHERE.match(link) and not is_there(target, anchor):
            broken.append(link)
    assert not broken


def test_every_page_and_heading_that_a_file_names_is_there() -> None:
    broken = [
        f"{path.relative_to(REPOSITORY)}: {page}#{anchor}"
        for path in FILES
        for page, anchor in _cited(path)
        if not is_there(REPOSITORY / page, anchor)
    ]
    assert not broken


@pytest.mark.parametrize("anchor", OLD_ANCHORS)
def test_old_anchors_of_the_operations_page_still_lead_on(anchor: str) -> None:
    assert anchor in anchors(REPOSITORY / "docs/operations.md")


def test_anchors_are_made_as_github_makes_them(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A page, and `code_here`: 1. Yes\n\n## [Linked](x.md#y)\n\n## Twice\n\n## Twice\n\n"
        "```sh\n# no heading\n```\n\n[one](a.md#b) `[none](c.md)` ![two](d.png) [three]: e.md\n"
    )
    assert anchors(page) == {"a-page-and-code_here-1-yes", "linked", "twice", "twice-1"}
    assert list(links(page)) == ["x.md#y", "a.md#b", "d.png"]
    assert not is_there(page, "thrice")
    assert not is_there(tmp_path / "missing.md", "")
