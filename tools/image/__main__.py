"""Build both images without a container engine, in clean root file systems. Then test them."""

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from proxy.embedded import EmbeddedBroker
from tools.image import trials
from tools.image.builder import Builder
from tools.image.clean_root import NotPossibleHere, debian
from tools.image.compose_kafka import compose_environment, starts_with
from tools.image.dockerfile import stages
from tools.image.holding import DidNotHold

REPOSITORY: Final = Path(__file__).parents[2]
TARGETS: Final = ("proxy", "audit")


def main() -> int:
    """Return 0 if all trials succeeded, 1 if a trial failed, 3 if this machine cannot run them."""
    parser = argparse.ArgumentParser(prog="python -m tools.image", description=__doc__)
    parser.add_argument("--folder", type=Path, default=REPOSITORY / "build" / "image")
    parser.add_argument("--target", choices=TARGETS, action="append", help="default: both")
    asked = parser.parse_args()
    try:
        _try_all(asked.folder.absolute(), asked.target or list(TARGETS))
    except NotPossibleHere as impossible:
        print(f"Not tried: {impossible}", file=sys.stderr)
        return 3
    except (DidNotHold, AssertionError, subprocess.CalledProcessError) as failed:
        print(f"Did not hold: {failed}", file=sys.stderr)
        return 1
    print("All held.")
    return 0


def _try_all(folder: Path, targets: list[str]) -> None:
    clean = debian(folder)
    known = stages((REPOSITORY / "Dockerfile").read_text("utf-8"))
    builder = Builder(REPOSITORY, clean, folder / "stages")
    (folder / "stages").mkdir(exist_ok=True)
    began = time.monotonic()
    images = {target: builder.build(target, known) for target in dict.fromkeys(["proxy", *targets])}
    print(f"built in {time.monotonic() - began:.0f} s")
    trial = folder / "trial"
    shutil.rmtree(trial, ignore_errors=True)
    trial.mkdir()
    environment = compose_environment(REPOSITORY / "compose.yaml")
    _tell("compose", starts_with(environment, trial / "compose-kafka"))
    with EmbeddedBroker(trial / "broker") as broker:
        bootstrap = broker.bootstrap_servers
        _tell("proxy", trials.common(images["proxy"], trial / "data", trials.NOT_IN_PROXY))
        _tell("proxy", trials.proxy_runs(images["proxy"], trial, bootstrap))
        if "audit" in targets:
            _tell("audit", trials.common(images["audit"], trial / "data", trials.NOT_IN_AUDIT))
            _tell("audit", trials.audit_runs(images["audit"], trial, bootstrap))


def _tell(name: str, seen: Iterable[str]) -> None:
    for line in seen:
        print(f"{name}: {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
