"""SBOMs of the images in the format CycloneDX. They list the wheel and the packages of its lock
file."""

import json
import shutil
import sys
from pathlib import Path
from typing import Final

from tests.support.distributions import asked_for, closure, environment_of
from tools.release.findings import Fault, output_of

IMAGES: Final = {"proxy": ("otel", "rocksdb"), "audit": ("spark",)}
"""Images, and the extras in their lock files. A test checks that `.venv` has the same versions."""


def listed(root: Path, packages: Path, folder: Path, version: str) -> str:
    """Write `sbom-proxy.json` and `sbom-audit.json`."""
    counts = [f"{_listed(root, packages, folder, name, version)} in {name}" for name in IMAGES]
    return f"components: {', '.join(counts)}"


def _listed(root: Path, packages: Path, folder: Path, name: str, version: str) -> int:
    environment = folder / f"environment-{name}"
    shutil.rmtree(environment, ignore_errors=True)
    python = environment_of(environment, closure(asked_for(*IMAGES[name])).values())
    (wheel,) = packages.glob("kafka_delay_proxy-*.whl")
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet")
    output_of(*pip, "--no-index", "--no-deps", wheel, folder=root)
    printed = output_of(python.with_name("kafka-delay-proxy"), "--version", folder=folder).strip()
    if printed != version:
        raise Fault(f"The installed wheel prints version {printed}, not {version}.")
    file = folder / f"sbom-{name}.json"
    cyclonedx = Path(sys.executable).with_name("cyclonedx-py")
    # Without --no-validate, checking the form of each address takes minutes.
    options = ("--output-reproducible", "--no-validate", "-o", file)
    output_of(cyclonedx, "environment", *options, python, folder=root)
    shutil.rmtree(environment)
    return len(json.loads(file.read_text("utf-8"))["components"])
