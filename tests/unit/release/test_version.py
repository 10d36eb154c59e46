"""The version is defined once. `test_release_check.py` compares the other mentions."""

import re
import tomllib

from packaging.version import Version

import proxy
from proxy.telemetry.metrics import Metrics
from tests.support.distributions import REPOSITORY

HEADING = re.compile(r"^## \[(?P<version>[^\]]+)\](?: - (?P<date>\d{4}-\d\d-\d\d))?$", re.MULTILINE)
KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def _changelog() -> str:
    return (REPOSITORY / "CHANGELOG.md").read_text("utf-8")


def test_distribution_takes_its_version_from_the_package() -> None:
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))
    assert "version" not in settings["project"]
    assert settings["project"]["dynamic"] == ["version"]
    assert settings["tool"]["hatch"]["version"] == {"path": "proxy/__init__.py"}
    assert str(Version(proxy.__version__)) == proxy.__version__


def test_metrics_name_the_version_that_runs() -> None:
    registry = Metrics().registry
    labels = {"version": proxy.__version__}
    assert registry.get_sample_value("delay_proxy_build_info", labels) == 1


def test_changelog_begins_with_what_is_unreleased() -> None:
    assert next(HEADING.finditer(_changelog()))["version"] == "Unreleased"


def test_changelog_goes_from_the_newest_version_to_the_oldest() -> None:
    dated = [one for one in HEADING.finditer(_changelog()) if one["date"]]
    assert len(dated) == len(re.findall(r"^## ", _changelog(), re.MULTILINE)) - 1
    versions = [Version(one["version"]) for one in dated]
    assert versions == sorted(versions, reverse=True)
    assert [one["date"] for one in dated] == sorted((one["date"] for one in dated), reverse=True)


def test_changelog_uses_the_sections_of_keep_a_changelog() -> None:
    assert set(re.findall(r"^### (.*)$", _changelog(), re.MULTILINE)) <= KINDS
