"""Commands in the pages exist with their options."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from proxy.cli.app import app

REPOSITORY = Path(__file__).parents[3]
FOLDERS = (".", "docs", "docs/operations", "examples")
PAGES = [page for folder in FOLDERS for page in (REPOSITORY / folder).glob("*.md")]
CODE = re.compile(r"^ *```\w*\n(.*?)^ *```|`([^`\n]+)`", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"(^|\s)# .*")
COMMAND = re.compile(r"(?:(?<=bin/)|(?<![\w/-]))kafka-delay-proxy +([^\n|;>]*)")
MAKE = re.compile(r"^(?:\$ )?make ((?:[a-z][a-z-]* ?)+)", re.MULTILINE)
TARGET = re.compile(r"^([a-z-]+):", re.MULTILINE)
HELP = {"--help", "-h"}
ALONE = {"--version", "--install-completion", "--show-completion"}


def _code(page: Path) -> Iterator[str]:
    for block, inline in CODE.findall(page.read_text("utf-8").replace("\\\n", " ")):
        yield COMMENT.sub("", block or inline)


def _written(pattern: re.Pattern[str]) -> list[str]:
    code = [piece for page in PAGES for piece in _code(page)]
    return sorted({found.strip() for piece in code for found in pattern.findall(piece)})


def _split(words: list[str]) -> tuple[Any, list[str]]:
    command: Any = typer.main.get_command(app)
    while words and words[0] in getattr(command, "commands", {}):
        command, words = command.commands[words[0]], words[1:]
    return command, words


@pytest.mark.parametrize("written", _written(COMMAND))
def test_a_command_in_the_pages_exists_and_takes_its_options(written: str) -> None:
    command, rest = _split(written.split())
    is_group = hasattr(command, "commands")
    known = {name for one in command.params for name in one.opts} | (ALONE if is_group else HELP)
    options = {word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)}
    assert options <= known
    assert not is_group or len(rest) == len(options), f"no command: {written}"


@pytest.mark.parametrize("written", _written(MAKE))
def test_a_target_of_make_in_the_pages_exists(written: str) -> None:
    targets = TARGET.findall((REPOSITORY / "Makefile").read_text("utf-8"))
    assert set(written.split()) <= set(targets)
