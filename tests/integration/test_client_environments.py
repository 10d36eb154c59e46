"""The client installs with old and new versions of Python, confluent-kafka and others."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.slow]

CLIENT = Path(__file__).parents[2] / "client"
OLDEST, NEWEST = "confluent-kafka==2.6.0", "confluent-kafka"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
BESIDE = {
    "aiokafka": "aiokafka",
    "faststream[kafka]": "faststream.kafka",
    "faststream[confluent]": "faststream.confluent",
    "quixstreams": "quixstreams",
    "proxy.py": "proxy",
}
PROGRAM = """
import sys
import kafka_delay
from kafka_delay import DelayProducer, RetryConsumer, delayed
key, value, headers = delayed("orders", "v", "k", delay="1s", id="x")
assert (key, value, headers[-1]) == (b"x", b"v", ("timer-key", b"k"))
with DelayProducer({"test.mock.num.brokers": 1}) as producer:
    assert producer.send("orders", "v", delay="1s").result(60).topic == "timer.ingress"
RetryConsumer({"bootstrap.servers": "localhost:9"}, "billing", ["orders"], print)
for name in sys.argv[1:]:
    __import__(name)
"""


def _pythons() -> Iterator[tuple[str, str]]:
    for version in PYTHONS:
        versions = Path.home().joinpath(".pyenv", "versions").glob(f"{version}.*/bin/python")
        found = next(map(str, sorted(versions)), None) or shutil.which(f"python{version}")
        if found:
            yield version, found


FOUND = dict(_pythons())


def _run(*command: object) -> subprocess.CompletedProcess[str]:
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [str(one) for one in command], env=variables, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = (sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation")
    built = _run(*build, "--wheel-dir", folder, CLIENT)
    assert built.returncode == 0, built.stderr
    (made,) = folder.glob("kafka_delay_client-*.whl")
    return made


def _works(python: str, folder: Path, packages: list[object], *imported: str) -> None:
    assert _run(python, "-m", "venv", folder).returncode == 0
    own = folder / "bin" / "python"
    pip = (own, "-m", "pip", "--disable-pip-version-check")
    installed = _run(*pip, "install", "--only-binary", "confluent-kafka", *packages)
    if "No matching distribution found for confluent-kafka" in installed.stderr:
        pytest.skip("this confluent-kafka has no wheel for this Python")
    assert installed.returncode == 0, installed.stderr
    checked = _run(*pip, "check")
    assert checked.returncode == 0, checked.stdout
    used = _run(own, "-c", PROGRAM, *imported)
    assert used.returncode == 0, used.stderr


@pytest.mark.parametrize("library", [OLDEST, NEWEST])
@pytest.mark.parametrize("version", FOUND)
def test_it_works_with_each_python_and_the_oldest_and_newest_confluent_kafka(
    version: str, library: str, wheel: Path, tmp_path: Path
) -> None:
    _works(FOUND[version], tmp_path / "environment", [wheel, library])


@pytest.mark.parametrize(("package", "imported"), BESIDE.items())
def test_it_installs_beside(package: str, imported: str, wheel: Path, tmp_path: Path) -> None:
    _works(sys.executable, tmp_path / "environment", [wheel, package], imported)
