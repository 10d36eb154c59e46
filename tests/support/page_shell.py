"""Commands of a page, run in one shell as a reader would, and the output that the page shows."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

WITHIN_S = 900
REPOSITORY = Path(__file__).parents[2]
BETWEEN = "next part of the page"


def blocks(page: str) -> list[str]:
    """Return the page's commands. Leave out blocks that install something."""
    return [
        code
        for code in re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
        if not re.search(r"\b(pip|uv tool) ", code)
    ]


def run_blocks(
    codes: Sequence[str],
    folder: Path,
    replaced: Mapping[str, str],
    environment: Mapping[str, str] | None = None,
    before: str = "",
) -> list[str]:
    """Run the blocks in `folder`, with the texts in `replaced` changed. Return the output of each
    block."""
    script = f"\necho {BETWEEN}\n".join(codes)
    for text, other in replaced.items():
        script = script.replace(text, other)
    path = f"{before}{Path(sys.executable).parent}:{os.environ['PATH']}"
    given = {**os.environ, "PATH": path, "PYTHONPATH": str(REPOSITORY), **(environment or {})}
    printed = folder.with_name("printed")
    with printed.open("wb") as out:
        shell = subprocess.Popen(
            ["sh", "-ec", script],  # noqa: S607
            cwd=folder,
            env=given,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        with suppress(subprocess.TimeoutExpired):
            shell.wait(WITHIN_S)
        assert shell.poll() == 0, printed.read_text("utf-8")
    finally:
        with suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
    return printed.read_text("utf-8").split(f"{BETWEEN}\n")


def assert_as_shown(codes: Sequence[str], outputs: Sequence[str]) -> None:
    """Compare each output with the block's lines that begin with `#`. Figures may differ."""
    for code, output in zip(codes, outputs, strict=True):
        if wanted := [_without_figures(x) for x in re.findall(r"^# (.*)$", code, re.MULTILINE)]:
            assert [_without_figures(line) for line in output.splitlines()] == wanted, code


def _without_figures(line: str) -> str:
    unmeasured = re.sub(r"\+[\d.]+ (ms|s|min)", "+0", line)
    return re.sub(r"\s+", " ", re.sub(r"[\d:.]+([+-][\d:]+)?", "0", unmeasured)).strip()
