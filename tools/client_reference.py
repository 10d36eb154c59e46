"""Reference of the Python client for the documentation site, made from the client's docstrings."""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from enum import Enum
from itertools import pairwise
from typing import Any

import kafka_delay


def client_names() -> Iterator[str]:
    """Yield all public names of the client as Markdown."""
    for name in kafka_delay.__all__:
        found = getattr(kafka_delay, name)
        yield f"## `{name}`\n"
        is_called = not inspect.isclass(found) or _is_opened(found)
        yield from _call(name, found) if is_called else [f"{_docstring(found)}\n"]
        if inspect.isclass(found):
            yield from (f"- `{field}`: {said}" for field, said in _fields(found))
            yield ""
            yield from _members(found)


def _is_opened(found: type) -> bool:
    """Return whether users create objects of the class."""
    is_protocol = getattr(found, "_is_protocol", False)
    is_own_error = found in {kafka_delay.DeadLetter, kafka_delay.RetryLater}
    return is_own_error or not (issubclass(found, Exception | Enum) or is_protocol)


def _members(found: type) -> Iterator[str]:
    for name, member in inspect.getmembers(found, _is_documented):
        if name.startswith("_"):
            continue
        yield f"### {found.__name__}.{name}\n"
        is_method = inspect.isfunction(member)
        yield from _call(name, member) if is_method else [f"{_docstring(member)}\n"]


def _is_documented(member: object) -> bool:
    is_ours = inspect.isfunction(member) or isinstance(member, property)
    return is_ours and bool(inspect.getdoc(member))


def _call(name: str, found: Any) -> Iterator[str]:
    """Yield the signature without annotations, and the docstring."""
    signature = inspect.signature(found)
    bare = [
        one.replace(annotation=inspect.Parameter.empty)
        for one in signature.parameters.values()
        if one.name != "self"
    ]
    called = signature.replace(parameters=bare, return_annotation=inspect.Signature.empty)
    yield f"```python\n{name}{called}\n```\n"
    yield f"{_docstring(found)}\n"


def _docstring(found: object) -> str:
    said = inspect.getdoc(found) or ""
    return re.sub(r"docs/(client\.md#[\w-]+)", r"[more](../\1)", said)


def _fields(found: type) -> Iterator[tuple[str, str]]:
    """Yield the fields of a class that have a docstring below them."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(found))).body
    assert isinstance(tree, ast.ClassDef)
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    for field, below in (pair for node in nodes for pair in pairwise(node.body)):
        if isinstance(field, ast.AnnAssign | ast.Assign) and isinstance(below, ast.Expr):
            name = ast.unparse(
                field.target if isinstance(field, ast.AnnAssign) else field.targets[0]
            )
            text = ast.literal_eval(below.value) if isinstance(below.value, ast.Constant) else None
            if isinstance(text, str) and not name.removeprefix("self.").startswith("_"):
                yield name.removeprefix("self."), " ".join(text.split())
