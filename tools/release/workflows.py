"""Workflows, checked by actionlint (syntax, expressions) and zizmor (rights, pins, injection)."""

import sys
from pathlib import Path
from typing import Final

from tools.install.go_built import GoProgram, NotBuilt
from tools.install.tools import ToolMissing, provided
from tools.release.findings import Fault, NotHere, output_of

ACTIONLINT: Final = GoProgram(
    "actionlint",
    "github.com/rhysd/actionlint",
    "v1.7.12",
    "github.com/rhysd/actionlint/cmd/actionlint",
)


def checked(root: Path) -> str:
    """Check all workflows, and return their number. Raise Fault with the programs' findings."""
    files = sorted((root / ".github" / "workflows").glob("*.yaml"))
    if not files:
        raise Fault("No workflow in .github/workflows.")
    zizmor = Path(sys.executable).with_name("zizmor")
    options = ["--offline", "--strict-collection", "--no-progress", "--quiet"]
    output_of(zizmor, *options, ".github", folder=root)
    output_of(_actionlint(), "-no-color", *files, folder=root)
    return f"{len(files)} accepted"


def _actionlint() -> Path:
    try:
        return provided(ACTIONLINT)
    except (ToolMissing, NotBuilt) as missing:
        raise NotHere(str(missing)) from None
