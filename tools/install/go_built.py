"""Programs that Go builds from published modules at fixed versions."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

BUILD_WITHIN_S: Final = 3_600
LAST_CHARACTERS: Final = 2_000


class NotBuilt(Exception):
    """Failed build, with Go's output."""


@dataclass(frozen=True, slots=True)
class GoProgram:
    name: str
    module: str
    version: str
    package: str
    linked: tuple[str, ...] = ()
    """`name=value` of variables that the linker sets."""
    main: Path | None = None
    """Go source of the program, if the module's own is not used. Then `package` is `.`."""
    newer: tuple[str, ...] = ()
    """`module version` of dependencies to raise, so that programs share a build."""


def build(program: GoProgram, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f"{target.name}.{os.getpid()}")
    with tempfile.TemporaryDirectory(prefix="go-built-") as folder:
        file = Path(folder, "go.mod")
        file.write_text(around(program, _own_go_mod(program, folder)), "utf-8")
        if program.main:
            shutil.copy(program.main, folder)
        linked = " ".join(["-s -w", *(f"-X {one}" for one in program.linked)])
        wanted = ["-mod=mod", "-ldflags", linked, "-o", str(unfinished), program.package]
        _go(["build", *wanted], folder)
    if not os.access(unfinished, os.X_OK):
        unfinished.unlink()
        raise NotBuilt(f"{program.package} is a library, no program")
    unfinished.replace(target)


def around(program: GoProgram, own: str) -> str:
    """Return a go.mod that builds the program. `own` is the go.mod of the program's module. If
    `own` replaces modules by folders (Kubernetes: staging), another module cannot see these
    folders. So the result names the published modules: v0.X.Y for Kubernetes vX.Y."""
    published = re.sub(r"^v\d+", "v0", program.version)
    parts = re.findall(r"^\s*(?:replace )?(\S+) => \./staging/", own, re.MULTILINE)
    lines = ["module local/built", "go 1.24.0", f"require {program.module} {program.version}"]
    lines += [f"require {one}" for one in program.newer]
    lines += [f"replace {part} => {part} {published}" for part in parts]
    return "\n".join([*lines, ""])


def _own_go_mod(program: GoProgram, folder: str) -> str:
    asked = ["mod", "download", "-json", f"{program.module}@{program.version}"]
    return Path(json.loads(_go(asked, folder))["GoMod"]).read_text("utf-8")


def _go(arguments: list[str], folder: str) -> str:
    """Return Go's output. It runs with low priority, because a build can take minutes on two
    cores."""
    try:
        ran = subprocess.run(
            ["nice", "go", *arguments],  # noqa: S607
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=BUILD_WITHIN_S,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        minutes = round(late.timeout / 60)
        raise NotBuilt(
            f"go {arguments[0]} took more than {minutes} minutes. Try again: Go keeps what it has "
            "compiled."
        ) from None
    if ran.returncode:
        raise NotBuilt(f"go {arguments[0]}: {ran.stderr[-LAST_CHARACTERS:]}")
    return ran.stdout
