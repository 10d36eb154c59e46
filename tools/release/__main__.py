"""Make all files of a release, and check them and the workflows. Publish nothing.

The packages go to dist/, everything else to build/release/.
"""

import argparse
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tools.release import artifacts, contents, packages, versions, workflows
from tools.release.findings import Fault, NotHere

ROOT: Final = Path(__file__).parents[2]
Steps = dict[str, Callable[[], str]]


def main() -> int:
    """Return 0 if all steps passed, else 1. A step that cannot run here fails with `--all`."""
    parser = argparse.ArgumentParser(prog="python -m tools.release", description=__doc__)
    parser.add_argument("--all", action="store_true", help="no step may be skipped")
    parser.add_argument("--tag", default=os.environ.get("RELEASE_TAG", ""), help="v1.2.3")
    asked = parser.parse_args()
    results = {name: _result(step) for name, step in _steps(asked.tag).items()}
    print(table(results))
    wrong = {"FAILED", "skipped"} if asked.all else {"FAILED"}
    return 1 if wrong & {result for result, _ in results.values()} else 0


def _steps(tag: str) -> Steps:
    dist, made = ROOT / "dist", ROOT / "build" / "release"
    for folder in (dist, made):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)

    def version() -> str:
        return versions.agreed(ROOT)

    def agreed() -> str:
        (made / "notes.md").write_text(versions.notes(ROOT, version()) + "\n", "utf-8")
        return f"{versions.agreed(ROOT, tag)} everywhere"

    return {
        "versions": agreed,
        "workflows": lambda: workflows.checked(ROOT),
        "packages": lambda: packages.built_twice(ROOT, dist),
        "chart": lambda: artifacts.packaged(ROOT, made, version()),
        "SBOMs": lambda: contents.listed(ROOT, dist, made, version()),
        "image": lambda: artifacts.image_built(ROOT, version()),
    }


def _result(step: Callable[[], str]) -> tuple[str, str]:
    began = time.monotonic()
    try:
        result = "passed", step()
    except NotHere as reason:
        result = "skipped", str(reason)
    except Fault as fault:
        result = "FAILED", str(fault)
    print(f"{result[0]} after {time.monotonic() - began:.0f} s: {result[1]}", flush=True)
    return result


def table(results: dict[str, tuple[str, str]]) -> str:
    """Return a line for each step, with the first line of its result."""
    rows = [(name, result, said.splitlines()[0]) for name, (result, said) in results.items()]
    return "\n".join(f"{name:<10} {result:<8} {said}" for name, result, said in rows)


if __name__ == "__main__":
    sys.exit(main())
