"""Markdown pages as GitHub shows them: the anchors of their headings, and their links."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

FENCE: Final = re.compile(r"^ *(```|~~~).*?^ *\1", re.MULTILINE | re.DOTALL)
CODE: Final = re.compile(r"(`+)(.+?)\1", re.DOTALL)
HEADING: Final = re.compile(r"^#{1,6} +(.*?)#*$", re.MULTILINE)
LINK: Final = re.compile(r"\]\(\s*<?([^)\s>]+)>?[^)]*\)|^\[[^\]]+\]: +(\S+)", re.MULTILINE)
LINKED_TEXT: Final = re.compile(r"\[([^\]]*)\]\([^)]*\)")
NOT_IN_ANCHORS: Final = re.compile(r"[^\w\- ]")


def anchors(page: Path) -> set[str]:
    """What may follow `#` in a link to the page; a heading that comes again gets a number."""
    seen: Counter[str] = Counter()
    found = set()
    for heading in HEADING.findall(FENCE.sub("", page.read_text("utf-8"))):
        text = LINKED_TEXT.sub(r"\1", heading).replace("\\", "").strip().lower()
        anchor = NOT_IN_ANCHORS.sub("", text).replace(" ", "-")
        found.add(f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor)
        seen[anchor] += 1
    return found


def prose(page: Path) -> str:
    """The page without its code."""
    return CODE.sub("", FENCE.sub("", page.read_text("utf-8")))


def links(page: Path) -> Iterator[str]:
    """Where the page's links lead."""
    for inline, reference in LINK.findall(prose(page)):
        yield inline or reference


def is_there(target: Path, anchor: str) -> bool:
    """Whether the file, or the folder, exists, and the anchor in it; no anchor is always there."""
    return target.exists() and (not anchor or anchor in anchors(target))
