"""Anchors and links of Markdown pages, as on GitHub."""

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
    """Return the anchors of a page. A repeated heading gets a number."""
    seen: Counter[str] = Counter()
    found = set()
    for heading in HEADING.findall(FENCE.sub("", page.read_text("utf-8"))):
        text = LINKED_TEXT.sub(r"\1", heading).replace("\\", "").strip().lower()
        anchor = NOT_IN_ANCHORS.sub("", text).replace(" ", "-")
        found.add(f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor)
        seen[anchor] += 1
    return found


def prose(page: Path) -> str:
    return CODE.sub("", FENCE.sub("", page.read_text("utf-8")))


def links(page: Path) -> Iterator[str]:
    for inline, reference in LINK.findall(prose(page)):
        yield inline or reference


def is_there(target: Path, anchor: str) -> bool:
    return target.exists() and (not anchor or anchor in anchors(target))
