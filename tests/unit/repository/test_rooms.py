"""The product's packages have an explanation and a named entry point."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
PRODUCT = ("proxy", "storage", "spark_jobs", "client")
BEGIN_WITH = re.compile(r"Begin\s+with\s+`([\w.]+)`")
USES = re.compile(r"[Mm]ay\s+use|Uses\s+nothing")
CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
POINTS_ELSEWHERE = re.compile(r"^See `[\w.]+`\.?$")


def _rooms() -> list[Path]:
    return sorted(
        path.parent for top in PRODUCT for path in (REPOSITORY / top).rglob("__init__.py")
    )


def _modules(room: Path) -> list[Path]:
    return sorted(path for path in room.glob("*.py") if path.name != "__init__.py")


def _all_modules() -> Iterator[Path]:
    for room in _rooms():
        yield from _modules(room)


def _name(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


@pytest.mark.parametrize("room", _rooms(), ids=_name)
def test_a_room_says_what_it_may_use_and_where_to_begin_reading(room: Path) -> None:
    said = ast.get_docstring(ast.parse((room / "__init__.py").read_text("utf-8"))) or ""
    begin = BEGIN_WITH.search(said)
    assert USES.search(said)
    assert begin
    place = room.joinpath(*begin[1].split("."))
    assert place.with_suffix(".py").is_file() or (place / "__init__.py").is_file()


def _words(name: str) -> str:
    return CAPITAL.sub("_", name).lower()


def _public(path: Path, kind: type[ast.ClassDef] | type[ast.FunctionDef]) -> list[str]:
    tree = ast.parse(path.read_text("utf-8"))
    named = [node.name for node in tree.body if isinstance(node, kind)]
    return [name for name in named if not name.startswith("_")]


def _is_named_after(path: Path, name: str) -> bool:
    """Return whether the name matches. Words of the package's own name may be left out:
    `admin/server.py`."""
    rest = _words(name).replace(path.stem, "", 1).strip("_")
    return path.stem in _words(name) and (not rest or rest in _words(path.parent.name))


def test_a_file_with_one_public_class_is_named_after_it() -> None:
    wrong = []
    for path in _all_modules():
        classes = _public(path, ast.ClassDef)
        is_alone = len(classes) == 1 and not _public(path, ast.FunctionDef)
        if is_alone and not _is_named_after(path, classes[0]):
            wrong.append(f"{_name(path)}: {classes[0]}")
    assert not wrong


def test_no_docstring_sends_its_reader_elsewhere() -> None:
    sending = [
        f"{_name(path)}:{node.lineno}"
        for path in _all_modules()
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, (ast.ClassDef, ast.FunctionDef))
        and POINTS_ELSEWHERE.match(ast.get_docstring(node) or "")
    ]
    assert not sending
