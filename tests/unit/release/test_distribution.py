"""Wheel and sdist are complete, and run without other packages."""

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import kafka_delay
import proxy
from tests.support.distributions import REPOSITORY, asked_for, closure, environment_of

BESIDE_CODE = {
    "proxy/config/default.yaml",
    "proxy/embedded/kafka-jars.lock",
    "proxy/py.typed",
    "spark_jobs/runtime/connector-jars.lock",
    "spark_jobs/runtime/log4j2.properties",
    "spark_jobs/py.typed",
    "spark_jobs/results/questions/reconciliation.sql",
    "spark_jobs/results/report.html.j2",
    "storage/FORMAT.md",
    "storage/py.typed",
}
WITH_THE_SOURCE = {
    ".github/workflows/tests.yaml",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Dockerfile",
    "LICENSE",
    "Makefile",
    "README.md",
    "RELEASING.md",
    "SECURITY.md",
    "client/kafka_delay/producer.py",
    "client/pyproject.toml",
    "compose.yaml",
    "docs/guide.md",
    "examples/README.md",
    "image/proxy.yaml",
    "pyproject.toml",
    "requirements-proxy.lock",
    "requirements.lock",
    "tests/conftest.py",
}
PACKAGES = ("proxy", "storage", "spark_jobs")
ENTRY = "kafka_delay_proxy.py"
CLIENT = REPOSITORY / "client"
Run = Callable[..., subprocess.CompletedProcess[str]]


def _build(source: Path, folder: Path, target: str) -> Path:
    built = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", folder],
        cwd=source,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    (made,) = folder.glob("*.whl" if target == "wheel" else "*.tar.gz")
    return made


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _build(REPOSITORY, tmp_path_factory.mktemp("wheel"), "wheel")


@pytest.fixture(scope="module")
def client_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _build(CLIENT, tmp_path_factory.mktemp("client"), "wheel")


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _build(REPOSITORY, tmp_path_factory.mktemp("sdist"), "sdist")


def _in_wheel(wheel: Path) -> set[str]:
    return set(zipfile.ZipFile(wheel).namelist())


def test_wheel_holds_every_module_and_what_lies_beside_them(wheel: Path) -> None:
    modules = {
        str(path.relative_to(REPOSITORY))
        for package in PACKAGES
        for kind in ("*.py", "*.sql")
        for path in (REPOSITORY / package).rglob(kind)
    }
    assert (modules | BESIDE_CODE) - _in_wheel(wheel) == set()


def test_wheel_holds_nothing_but_the_three_packages_and_the_entry(wheel: Path) -> None:
    tops = {name.split("/")[0] for name in _in_wheel(wheel)}
    assert tops == {*PACKAGES, ENTRY, f"kafka_delay_proxy-{proxy.__version__}.dist-info"}
    assert wheel.name == f"kafka_delay_proxy-{proxy.__version__}-py3-none-any.whl"


def test_wheel_carries_its_licence(wheel: Path) -> None:
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in _in_wheel(wheel))


def test_sdist_holds_what_it_takes_to_build_and_test(sdist: Path) -> None:
    top = f"kafka_delay_proxy-{proxy.__version__}"
    with tarfile.open(sdist) as archive:
        names = set(archive.getnames())
    assert {f"{top}/{name}" for name in BESIDE_CODE | WITH_THE_SOURCE} - names == set()
    assert not [name for name in names if "/.venv" in name or "__pycache__" in name]


def test_wheel_made_from_the_sdist_is_the_same(sdist: Path, wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    assert _in_wheel(_build(source, tmp_path / "dist", "wheel")) == _in_wheel(wheel)


@pytest.fixture(scope="module")
def run(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("empty")
    python = environment_of(folder / "environment", closure(asked_for()).values())
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(python),
        "install",
        "--quiet",
        "--no-compile",
    ]
    subprocess.run([*pip, "--no-index", "--no-deps", str(wheel)], check=True)

    def run_in(
        program: str, *arguments: str, **variables: str
    ) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [python.with_name(program), *arguments],
            cwd=folder,
            env={"PATH": os.environ["PATH"], "HOME": str(folder), "COLUMNS": "200", **variables},
            capture_output=True,
            text=True,
            check=False,
        )

    return run_in


def test_installed_command_prints_the_version_of_the_one_place(run: Run) -> None:
    assert run("kafka-delay-proxy", "--version").stdout == f"{proxy.__version__}\n"


def test_installed_distribution_has_the_version_of_the_one_place(run: Run) -> None:
    ask = "from importlib.metadata import version; print(version('kafka-delay-proxy'))"
    assert run("python", "-c", ask).stdout == f"{proxy.__version__}\n"


def test_installed_command_judges_settings_offline(run: Run) -> None:
    checked = run("kafka-delay-proxy", "check", "--offline")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "Nothing would stop the proxy." in checked.stdout


@pytest.mark.parametrize(("command", "extra"), [("dev", "embedded"), ("audit", "spark")])
def test_installed_without_extras_it_says_which_one_is_missing(
    run: Run, command: str, extra: str
) -> None:
    ended = run("kafka-delay-proxy", command)
    assert ended.returncode == 1
    assert ended.stderr.endswith(f"Install it: pip install 'kafka-delay-proxy[{extra}]'.\n")


def test_wheel_of_the_client_holds_the_client_alone_and_needs_only_confluent_kafka(
    client_wheel: Path,
) -> None:
    names = _in_wheel(client_wheel)
    modules = {f"kafka_delay/{path.name}" for path in (CLIENT / "kafka_delay").glob("*.py")}
    assert modules | {"kafka_delay/py.typed"} <= names
    about = f"kafka_delay_client-{kafka_delay.__version__}.dist-info"
    assert {name.split("/")[0] for name in names} == {"kafka_delay", about}
    metadata = zipfile.ZipFile(client_wheel).read(f"{about}/METADATA").decode()
    assert re.findall(r"^Requires-Dist: (.*)$", metadata, re.MULTILINE) == [
        "confluent-kafka<3,>=2.6"
    ]


def test_client_is_imported_where_nothing_but_confluent_kafka_is(
    client_wheel: Path, tmp_path: Path
) -> None:
    (library,) = (one for one in asked_for() if one.name == "confluent-kafka")
    python = environment_of(tmp_path / "environment", closure([library]).values())
    ask = f"import sys; sys.path.append({str(client_wheel)!r}); import kafka_delay; import pydantic"
    asked = subprocess.run(
        [python, "-I", "-c", ask],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "No module named 'pydantic'" in asked.stderr
