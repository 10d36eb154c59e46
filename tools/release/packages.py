"""Wheels and source archives. They are built twice, and both builds must have the same bytes."""

import hashlib
import re
import shutil
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable
from os import environ
from pathlib import Path
from typing import Final

from tools.release import versions
from tools.release.findings import Fault, output_of

NOT_COPIED: Final = (".git", ".venv", "build", "dist", "__pycache__", ".*_cache", ".hypothesis")
EARLIEST: Final = "1580601600"
"""The time in archives if SOURCE_DATE_EPOCH is not set. Hatchling has the same default."""
EXPECTED: Final = 4
"""Number of packages: the wheel and the source archive of the service and of the client."""
RELATIVE_LINK: Final = re.compile(r"\]\((?![a-z]+:|#)([^)]+)\)")


def built_twice(root: Path, folder: Path) -> str:
    """Build all packages into `folder`. Raise Fault if a second build differs.

    The second build takes a copy whose files have other times and other rights. If the environment
    variable `SOURCE_URL` is set, the links of README.md begin with it in both builds, because
    package indexes show this page.
    """
    with tempfile.TemporaryDirectory(prefix="release-") as elsewhere:
        ignored = shutil.ignore_patterns(*NOT_COPIED)
        for name, copy_file in (("first", shutil.copy2), ("again", _as_others_have_it)):
            copy = Path(elsewhere, "copy", name)
            shutil.copytree(root, copy, ignore=ignored, copy_function=copy_file)
            address_links(copy)
            _build(copy, folder if name == "first" else Path(elsewhere, name))
        if unlike := differing(folder, Path(elsewhere, "again")):
            raise Fault(f"A second build differs: {'; '.join(unlike)}.")
    made = sorted(folder.iterdir())
    if len(made) != EXPECTED:
        raise Fault(f"{EXPECTED} files were expected, not {[one.name for one in made]}.")
    return f"{len(made)} files, the same bytes twice"


def address_links(copy: Path) -> None:
    """Make the links of README.md absolute, to the files at the tag of this version."""
    if source := environ.get("SOURCE_URL"):
        page, target = copy / "README.md", f"{source}/blob/v{versions.agreed(copy)}"
        text = page.read_text("utf-8")
        page.write_text(RELATIVE_LINK.sub(rf"]({target}/\1)", text), "utf-8")


def differing(first: Path, second: Path) -> list[str]:
    """Return each file that is not the same in both folders, with its first differing member."""
    names = {file.name for folder in (first, second) for file in folder.iterdir()}
    return [
        f"{name} ({_member(first / name, second / name)})"
        for name in sorted(names)
        if _digest(first / name) != _digest(second / name)
    ]


def _build(source: Path, folder: Path) -> None:
    hatchling = Path(sys.executable).with_name("hatchling")
    time = {"SOURCE_DATE_EPOCH": environ.get("SOURCE_DATE_EPOCH", EARLIEST)}
    output_of("make", "dist", f"DIST={folder}", f"HATCHLING={hatchling}", folder=source, **time)


def _as_others_have_it(source: str, target: str) -> None:
    shutil.copy(source, target)
    Path(target).chmod(Path(source).stat().st_mode ^ 0o020)


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.exists() else ""


def _member(first: Path, second: Path) -> str:
    if not (first.exists() and second.exists()):
        return "built once only"
    pairs = zip(_members(first), _members(second), strict=False)
    return next((one[0] for one, other in pairs if one != other), "its order, times or rights")


def _members(archive: Path) -> Iterable[tuple[str, bytes]]:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            yield from ((name, wheel.read(name)) for name in wheel.namelist())
    else:
        with tarfile.open(archive) as source:
            for one in source:
                content = source.extractfile(one)
                yield one.name, content.read() if content else b""
