"""The chart's archive and the image."""

import shutil
import tarfile
from os import environ
from pathlib import Path
from typing import Any, Final

import yaml

from tools.release.findings import Fault, NotHere, output_of

NAME: Final = "kafka-delay-proxy"
ENGINES: Final = ("podman", "docker")
IMAGE: Final = f"{NAME}:release-check"


def packaged(root: Path, folder: Path, version: str) -> str:
    """Package the chart. Raise Fault if its archive lacks a file or has another version.

    Environment variables: `CHART_IMAGE` names the image that the published chart installs by
    default, with its registry. `CHART_HOME` is the address of the site, and `SOURCE_URL` is the
    address of the repository.
    """
    source = root / "helm" / NAME
    published = folder / NAME
    shutil.rmtree(published, ignore_errors=True)
    shutil.copytree(source, published)
    _address(published)
    archive = _package(published, folder)
    shutil.rmtree(published)
    with tarfile.open(archive) as packed:
        inside = {one.name.removeprefix(f"{NAME}/") for one in packed if one.isfile()}
        chart = yaml.safe_load(_read(packed, "Chart.yaml"))
    left_out = {
        str(file.relative_to(source)) for file in source.rglob("*") if file.is_file()
    } - inside
    if chart["version"] != version or left_out:
        raise Fault(f"{archive.name} has version {chart['version']} and lacks {sorted(left_out)}.")
    return f"{archive.name}, {len(inside)} files"


def _address(chart: Path) -> None:
    """Write the addresses of the release into the chart. The chart in the source has none."""
    if image := environ.get("CHART_IMAGE", "").lower():
        registry, _, repository = image.partition("/")
        values = (chart / "values.yaml").read_text("utf-8")
        for empty, named in (
            ('registry: ""', f"registry: {registry}"),
            (f"repository: {NAME}", f"repository: {repository}"),
        ):
            values = values.replace(empty, named, 1)
        (chart / "values.yaml").write_text(values, "utf-8")
    with (chart / "Chart.yaml").open("a", encoding="utf-8") as about:
        if home := environ.get("CHART_HOME"):
            yaml.safe_dump({"home": home}, about)
        if source := environ.get("SOURCE_URL"):
            yaml.safe_dump({"sources": [source]}, about)


def _package(chart: Path, folder: Path) -> Path:
    if program := shutil.which("helm"):
        output_of(program, "lint", "--quiet", chart, folder=folder)
        output_of(program, "package", chart, "--destination", folder, folder=folder)
        (archive,) = folder.glob(f"{NAME}-*.tgz")
        return archive
    try:
        import helm_python
    except ImportError:
        raise NotHere("Put the program helm on the PATH, or install helm-python-sdk.") from None
    return Path(helm_python.package(chart, destination=folder))


def _read(packed: tarfile.TarFile, name: str) -> Any:
    content = packed.extractfile(f"{NAME}/{name}")
    return content.read() if content else b""


def image_built(root: Path, version: str) -> str:
    """Build the proxy's image, and check the version that it prints. The environment variable
    `BASE_IMAGE` names another base image."""
    engine = next((name for name in ENGINES if _answers(name, root)), None)
    if engine is None:
        raise NotHere(
            f"No container engine runs here ({', '.join(ENGINES)}). "
            "`make test-image` tries the Dockerfile without one."
        )
    base = ["--build-arg", f"PYTHON={environ['BASE_IMAGE']}"] if "BASE_IMAGE" in environ else []
    output_of(engine, "build", "--target", "proxy", "--tag", IMAGE, *base, ".", folder=root)
    printed = output_of(engine, "run", "--rm", IMAGE, "--version", folder=root).strip()
    if printed != version:
        raise Fault(f"The image prints version {printed}, not {version}.")
    return f"built and started with {engine}"


def _answers(engine: str, root: Path) -> bool:
    try:
        return bool(output_of(engine, "info", folder=root))
    except (Fault, FileNotFoundError):
        return False
