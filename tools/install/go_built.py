"""Programs that Go builds from published modules, each at one version."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

BUILD_WITHIN_S: Final = 3_600
LAST_CHARACTERS: Final = 2_000


class NotBuilt(Exception):
    """Go could not build it; says what Go said."""


@dataclass(frozen=True, slots=True)
class GoProgram:
    """A program: the module that holds it, at which version, and what is built."""

    name: str
    module: str
    version: str
    package: str
    linked: tuple[str, ...] = ()
    """`name=value` of variables that the linker sets."""


def build(program: GoProgram, target: Path) -> None:
    """Build it into the file `target`. Raises NotBuilt."""
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f"{target.name}.{os.getpid()}")
    with tempfile.TemporaryDirectory(prefix="go-built-") as folder:
        file = Path(folder, "go.mod")
        file.write_text(around(program, _own_go_mod(program, folder)), "utf-8")
        linked = " ".join(["-s -w", *(f"-X {one}" for one in program.linked)])
        wanted = ["-mod=mod", "-ldflags", linked, "-o", str(unfinished), program.package]
        _go(["build", *wanted], folder)
    if not os.access(unfinished, os.X_OK):
        unfinished.unlink()
        raise NotBuilt(f"{program.package} is a library, no program")
    unfinished.replace(target)


def around(program: GoProgram, own: str) -> str:
    """A go.mod in which the program can be built; `own` is its module's.

    What the module replaces by folders of its own (Kubernetes: staging), which other modules do
    not see, is replaced by the same as published: v0.X.Y for Kubernetes vX.Y.
    """
    published = re.sub(r"^v\d+", "v0", program.version)
    parts = re.findall(r"^\s*(?:replace )?(\S+) => \./staging/", own, re.MULTILINE)
    lines = ["module local/built", "go 1.24.0", f"require {program.module} {program.version}"]
    lines += [f"replace {part} => {part} {published}" for part in parts]
    return "\n".join([*lines, ""])


def _own_go_mod(program: GoProgram, folder: str) -> str:
    asked = ["mod", "download", "-json", f"{program.module}@{program.version}"]
    return Path(json.loads(_go(asked, folder))["GoMod"]).read_text("utf-8")


def _go(arguments: list[str], folder: str) -> str:
    """What Go prints. Several minutes of two cores are not unusual: others come first."""
    ran = subprocess.run(
        ["nice", "go", *arguments],  # noqa: S607
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=BUILD_WITHIN_S,
        check=False,
    )
    if ran.returncode:
        raise NotBuilt(f"go {arguments[0]}: {ran.stderr[-LAST_CHARACTERS:]}")
    return ran.stdout
