"""Errors of the steps of the release check, and the function by which a step runs a program."""

import os
import subprocess
from pathlib import Path
from typing import Final

LAST_CHARACTERS: Final = 3_000
WITHIN_S: Final = 3_600


class Fault(Exception):
    """Fault that stops a release, as a sentence."""


class NotHere(Exception):
    """Reason why a step cannot run on this machine."""


def output_of(*command: str | Path, folder: Path, **variables: str) -> str:
    """Return the output of a program. If the program fails, raise Fault with the output."""
    ran = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    if ran.returncode:
        said = (ran.stdout + ran.stderr)[-LAST_CHARACTERS:].strip()
        raise Fault(f"{Path(command[0]).name} ended with exit code {ran.returncode}:\n{said}")
    return ran.stdout
