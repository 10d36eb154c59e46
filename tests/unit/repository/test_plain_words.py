"""Pages, docstrings and comments read easily: short sentences, and few turns that stop a reader.

The patterns are a guide. A text that passes can still be hard to read.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LONGEST_SENTENCE_WORDS = 30
MOST_PER_1000_WORDS = 3
STOPS = re.compile(
    r"""
    \b(?:of|from|for|by|with|in|to|over|on|than|and|but)\ what\b     # a clause as a noun
    | (?:^|[.;:,(]\ )[Ww]hat\ (?![^.]*\?)
    | \b(?:whoever|whatever|whichever|wherever|where\ there\ (?:is|are))\b
    | \b(?:so\ (?:many|much|far|long)|as\ (?:far|long|many|much)\ as)\b
    | \b(?:that|those|the\ ones?)\ (?:of|which|who)\b | \bof\ (?:which|whom|these|those)\b
    | (?:^|[.!?]\ )(?:Of|By|Nor|Such|Thus|Hence)\                    # the subject comes late
    | \b(?:be\ it|but\ for|nor|save\ for|all\ the\ same|likewise|thereby|lest)\b
    | \b(?:the\ former|the\ latter|respectively|if\ any|if\ so|if\ not)\b
    """,
    re.VERBOSE,
)
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("storage/*.md")])
ROOMS = ("proxy", "storage", "spark_jobs", "client", "tools", "tests", "examples")


def _paragraphs(page: str) -> Iterator[str]:
    """Yield paragraphs, list items and table cells, without code."""
    block = list[str]()
    for line in re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL).splitlines():
        text = line.strip()
        if re.match(r"[-*|#>]|\d+\. ", text) or not text:
            yield " ".join(block)
            block = []
        if line.startswith("    "):
            continue
        if text.startswith("|"):
            yield from text.strip("|").split("|")
        elif not text.startswith("#"):
            block.append(re.sub(r"^(?:[-*>]|\d+\.) ", "", text))
    yield " ".join(block)


def _said(source: str) -> Iterator[str]:
    """Yield the paragraphs of docstrings and the comments of a module."""
    for node in ast.walk(ast.parse(source)):
        for child in (
            getattr(node, "body", []) if not isinstance(node, ast.Lambda | ast.IfExp) else ()
        ):
            value = child.value if isinstance(child, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield from (" ".join(part.split()) for part in value.value.split("\n\n"))
    yield from (found[1] for found in re.finditer(r"(?m)^ *# (.*)$", source))


def _sentences(paragraphs: Iterable[str]) -> Iterator[str]:
    for paragraph in paragraphs:
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`]*`", "X", paragraph))
        yield from (part for part in re.split(r"(?<=[.!?:;]) +", text) if part.strip())


def _words(text: str) -> list[str]:
    return re.findall(r"[A-Za-z][A-Za-z'-]*", text)


def _stops_per_1000_words(sentences: Iterable[str]) -> float:
    known = list(sentences)
    stops = sum(len(STOPS.findall(sentence)) for sentence in known)
    return 1000 * stops / max(1, sum(len(_words(sentence)) for sentence in known))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_no_sentence_of_a_page_is_long(page: Path) -> None:
    sentences = _sentences(_paragraphs(page.read_text("utf-8")))
    assert [one for one in sentences if len(_words(one)) > LONGEST_SENTENCE_WORDS] == []


def test_pages_have_few_turns_that_stop_a_reader() -> None:
    sentences = [one for page in PAGES for one in _sentences(_paragraphs(page.read_text("utf-8")))]
    assert _stops_per_1000_words(sentences) <= MOST_PER_1000_WORDS


@pytest.mark.parametrize("room", ROOMS)
def test_docstrings_and_comments_have_few_turns_that_stop_a_reader(room: str) -> None:
    sources = [path.read_text("utf-8") for path in sorted((ROOT / room).rglob("*.py"))]
    sentences = [one for source in sources for one in _sentences(_said(source))]
    assert _stops_per_1000_words(sentences) <= MOST_PER_1000_WORDS


def test_the_patterns_find_what_they_should() -> None:
    hard = ["By what it holds.", "Nor is it so many.", "It says the former, if any."]
    assert all(STOPS.search(sentence) for sentence in hard)
    easy = [
        "What does a proxy do?",
        "Due records are delivered at once.",
        "Return the last offset.",
    ]
    assert not any(STOPS.search(sentence) for sentence in easy)
