"""The house style that ruff, mypy and import-linter do not check."""

import ast
import re
import statistics
import subprocess
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import proxy
import spark_jobs
import storage

REPOSITORY = Path(__file__).parents[3]
PRODUCT = ("proxy", "storage", "spark_jobs", "client")
LONGEST_FUNCTION_LINES = 60
LONGEST_FILE_LINES = 700
MEDIAN_FUNCTION_LINES = 8
TELL_NOTHING = {"utils", "util", "helpers", "helper", "manager", "base", "common", "misc"}
NEEDS_A_UNIT = re.compile(r"(^|_)(timeout|delay|interval|duration|size|age|elapsed|period)$")
NUMBERS = {"int", "float", "int | None", "float | None"}
WORKPLACE = re.compile(r"(?<![\w.])/(work|root|home/\w+)/")
NOT_IN_THE_REPOSITORY = re.compile(r"\bDESIGN(?:\.md)?\b|\bHOUSE\.md\b")
CAN_END_THE_PROCESS = re.compile(
    r"\.(describe_consumer_groups|list_consumer_group_offsets|delete_consumer_group_offsets)\("
)
"""librdkafka 4605 and 5040: group coordinator calls abort the process if the coordinator leaves."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"), str(path))


def _python_files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (REPOSITORY / folder).rglob("*.py"))


def _functions(*folders: str) -> Iterator[tuple[str, Function]]:
    for path in _python_files(*folders):
        for node in ast.walk(_tree(path)):
            if isinstance(node, Function):
                yield f"{path.relative_to(REPOSITORY)}:{node.lineno} {node.name}", node


def _lines(node: Function) -> int:
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


def _lines_without_docstring(node: Function) -> int:
    docstring = ast.get_docstring(node, clean=False)
    return _lines(node) - (docstring.count("\n") + 1 if docstring else 0)


def _is_public(path: Path) -> bool:
    return not path.stem.startswith("_") or path.stem == "__init__"


def _committed_texts() -> Iterator[tuple[Path, str]]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"],  # noqa: S607
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("not a git work tree")
    for name in filter(None, listed.stdout.split("\0")):
        path = REPOSITORY / name
        if path.is_file():
            yield path, path.read_text("utf-8", errors="replace")


def test_no_function_is_longer_than_a_screen() -> None:
    too_long = [
        f"{where}: {_lines(node)} lines"
        for where, node in _functions(*PRODUCT, "tests", "tools")
        if _lines(node) > LONGEST_FUNCTION_LINES
    ]
    assert not too_long


def test_half_of_all_functions_are_at_most_eight_lines() -> None:
    lengths = [_lines_without_docstring(node) for _, node in _functions(*PRODUCT)]
    assert statistics.median(lengths) <= MEDIAN_FUNCTION_LINES


def test_no_file_is_longer_than_agreed() -> None:
    refused = []
    for path in _python_files(*PRODUCT, "tests", "tools"):
        lines = len(path.read_text("utf-8").splitlines())
        if lines > LONGEST_FILE_LINES:
            refused.append(f"{path.relative_to(REPOSITORY)}: {lines} lines")
    assert not refused


def test_no_name_of_a_module_tells_nothing() -> None:
    paths = [path.relative_to(REPOSITORY) for path in _python_files(*PRODUCT, "tests", "tools")]
    assert not [path for path in paths if TELL_NOTHING & set(path.with_suffix("").parts)]


def test_everything_public_says_what_it_is_for() -> None:
    silent = []
    for path in filter(_is_public, _python_files(*PRODUCT)):
        tree = _tree(path)
        named = [node for node in tree.body if isinstance(node, (ast.ClassDef, Function))]
        if tree.body and ast.get_docstring(tree) is None:
            silent.append(f"{path.relative_to(REPOSITORY)}: the module")
        silent += [
            f"{path.relative_to(REPOSITORY)}:{node.lineno} {node.name}"
            for node in named
            if not node.name.startswith("_") and ast.get_docstring(node) is None
        ]
    assert not silent


def test_numbers_carry_their_unit_in_their_name() -> None:
    bare = [
        f"{where}: {argument.arg}"
        for where, node in _functions(*PRODUCT)
        for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        if NEEDS_A_UNIT.search(argument.arg)
        and argument.annotation is not None
        and ast.unparse(argument.annotation) in NUMBERS
    ]
    assert not bare


def _says_not_done(node: Function) -> bool:
    last = node.body[-1]
    raised = ast.unparse(last) if isinstance(last, ast.Raise) else ""
    return "NotImplementedError" in raised


def test_nothing_is_left_as_a_stub() -> None:
    assert not [where for where, node in _functions(*PRODUCT) if _says_not_done(node)]


def _calls(node: ast.AST, name: str) -> bool:
    calls = (inner for inner in ast.walk(node) if isinstance(inner, ast.Call))
    return any(ast.unparse(call.func) == name for call in calls)


def test_no_unit_or_property_test_sleeps() -> None:
    functions = _functions("tests/unit", "tests/property")
    assert not [where for where, node in functions if _calls(node, "time.sleep")]


def test_every_property_test_states_what_it_holds() -> None:
    silent = []
    for where, node in _functions("tests"):
        is_property = any(_is_given(decorator) for decorator in node.decorator_list)
        if is_property and node.name.startswith("test_") and ast.get_docstring(node) is None:
            silent.append(where)
    assert not silent


def _is_given(decorator: ast.expr) -> bool:
    return isinstance(decorator, ast.Call) and ast.unparse(decorator.func).endswith("given")


def test_every_test_reads_as_a_sentence() -> None:
    tests = [(where, node) for where, node in _functions("tests") if node.name.startswith("test_")]
    assert not [where for where, node in tests if node.name.count("_") < 3]


def test_no_call_that_can_end_the_process_is_made_while_the_proxy_runs() -> None:
    calling = [
        f"{path.relative_to(REPOSITORY)}: {found.group()}"
        for path in _python_files("proxy")
        if "cli" not in path.parts
        and (found := CAN_END_THE_PROCESS.search(path.read_text("utf-8")))
    ]
    assert not calling


def test_nothing_committed_names_the_machine_it_was_written_on() -> None:
    naming = [
        f"{path.relative_to(REPOSITORY)}: {found.group()}"
        for path, text in _committed_texts()
        if path != Path(__file__) and (found := WORKPLACE.search(text))
    ]
    assert not naming


def test_nothing_committed_refers_to_a_document_outside_the_repository() -> None:
    referring = [
        f"{path.relative_to(REPOSITORY)}: {found.group()}"
        for path, text in _committed_texts()
        if path != Path(__file__) and (found := NOT_IN_THE_REPOSITORY.search(text))
    ]
    assert not referring


@pytest.mark.parametrize(
    "name",
    [
        *sorted(path.name for path in REPOSITORY.glob("requirements*.lock")),
        "proxy/embedded/kafka-jars.lock",
        "spark_jobs/runtime/connector-jars.lock",
        "tests/support/hadoop/hadoop-jars.lock",
    ],
)
def test_lock_files_name_no_index(name: str) -> None:
    assert "://" not in (REPOSITORY / name).read_text("utf-8")


def test_locked_packages_all_have_hashes() -> None:
    text = (REPOSITORY / "requirements.lock").read_text("utf-8").replace("\\\n", " ")
    assert not [line for line in text.splitlines() if "==" in line and "--hash=sha256:" not in line]


@pytest.mark.parametrize("package", [proxy, storage, spark_jobs], ids=lambda found: found.__name__)
def test_no_other_distribution_brings_a_package_of_our_name(package: object) -> None:
    name = getattr(package, "__name__", "")
    origin = Path(str(getattr(package, "__file__", ""))).resolve()
    bringing = set(packages_distributions().get(name, []))
    assert bringing <= {"kafka-delay-proxy"}
    assert origin.is_relative_to(REPOSITORY)
