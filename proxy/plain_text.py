"""Text from outside, made harmless before a person's terminal shows it.

Records, topics, settings, brokers and other proxies may hold characters that move the cursor, end
a line, or reverse the order of letters.
"""

import sys
from io import TextIOWrapper
from unicodedata import category


def show_any_text() -> None:
    """Escape characters that the terminal's encoding lacks, where they would end the program."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def plain(text: object) -> str:
    """Escape control and format characters and line breaks. None is empty."""
    said = "" if text is None else str(text)
    return said if said.isprintable() else "".join(map(_plain, said))


def plain_lines(text: object) -> str:
    """The same, but the text keeps its lines."""
    return "\n".join(map(plain, str(text).split("\n")))


def _plain(character: str) -> str:
    if character.isprintable() or category(character) == "Zs":
        return character
    return character.encode("unicode_escape").decode()
