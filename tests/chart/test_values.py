"""Chart values are documented, match the settings one to one, and unknown values are refused."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

import pytest
import yaml

from proxy.config.settings import Settings
from proxy.config.sources import DEFAULT_FILE, KeyPath, known_paths
from tests.support.chart.chart_comments import documented
from tests.support.chart.chart_files import CHART, schema, values
from tests.support.chart.chart_sets import SETS
from tests.support.chart.rendering import refusal, rendered

pytestmark = pytest.mark.usefixtures("helm")

RENEW = "run `make chart`"
REPOSITORY = CHART.parents[1]
OTHERWISE_IN_A_POD = {("kafka", "bootstrap.servers"), ("data_dir",), ("admin", "host")}


def default_values() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    return read


def leaves(section: object, path: KeyPath = ()) -> dict[KeyPath, object]:
    if not isinstance(section, dict) or not section:
        return {path: section}
    return {
        where: value
        for key, inner in section.items()
        for where, value in leaves(inner, (*path, str(key))).items()
    }


def project_version() -> str:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))
    if "version" in project["project"]:
        return str(project["project"]["version"])
    source = REPOSITORY / project["tool"]["hatch"]["version"]["path"]
    said = re.search(r'^__version__ = "(.+)"', source.read_text("utf-8"), re.MULTILINE)
    assert said is not None
    return said[1]


def test_chart_and_application_have_the_version_of_the_project() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    assert chart["version"] == chart["appVersion"] == project_version()


def test_the_schema_is_the_one_that_the_settings_model_gives() -> None:
    assert (CHART / "values.schema.json").read_text("utf-8") == schema(), RENEW


@pytest.mark.parametrize(
    "page", ["helm/kafka-delay-proxy/README.md", "docs/operations/kubernetes.md"]
)
def test_every_value_that_a_page_names_is_one_of_the_chart(page: str) -> None:
    known = {".".join(value.path) for value in documented(CHART / "values.yaml")}
    sections = "|".join(re.escape(name) for name in default_values())
    named = re.findall(rf"`((?:{sections})\.[\w.]+)", (REPOSITORY / page).read_text("utf-8"))
    assert named
    assert set(named) - known == set()


def test_the_section_config_is_the_proxys_default_file() -> None:
    assert (CHART / "values.yaml").read_text("utf-8") == values(), RENEW


def test_every_setting_of_the_model_is_a_value_and_the_other_way_round() -> None:
    config = default_values()["config"]
    written = {path[:n] for path in leaves(config) for n in range(1, len(path) + 1)}
    assert written - {("kafka", "bootstrap.servers")} == set(known_paths())


def test_the_defaults_are_the_proxys_but_for_what_a_pod_needs() -> None:
    ours = leaves(default_values()["config"])
    theirs = leaves(yaml.safe_load(DEFAULT_FILE.read_text("utf-8")))
    assert {path for path in theirs if ours[path] != theirs[path]} == OTHERWISE_IN_A_POD


def test_every_value_is_explained() -> None:
    silent = [value.path for value in documented(CHART / "values.yaml") if not value.said]
    assert silent == []


def test_every_key_of_the_schema_is_described() -> None:
    whole = json.loads(schema())
    parts = {"": whole, **whole["definitions"]}
    keys = {
        f"{name}.{key}": said
        for name, part in parts.items()
        for key, said in part.get("properties", {}).items()
    }
    assert len(keys) > 150
    silent = [key for key, said in keys.items() if not said.get("description")]
    assert silent == [], "add them to DESCRIBED in chart_files.py"
    assert keys[".replicas"]["description"].startswith("Number of pods.")


def test_what_may_be_written_into_the_settings_file_may_be_written_into_the_values() -> None:
    config = {
        "workers": 2,
        "levels": [1000, 5000],
        "max_delay": 5000,
        "roll_after": "7d",
        "header_aliases": "cesium, etf1",
        "kafka": {"linger.ms": 5, "log.queue": False},
        "release": {"overdue": [{"targets": "a*", "older_than": "10m", "action": "drop"}]},
    }
    settings = Settings.model_validate(rendered({"config": config}).settings)
    assert settings.levels_ms == (1_000, 5_000)
    assert settings.max_delay_ms == 5_000
    assert settings.header_aliases == ("cesium", "etf1")
    assert settings.kafka["linger.ms"] == "5"
    assert settings.kafka["log.queue"] == "false"
    assert settings.release.overdue[0].older_than_ms == 600_000


@pytest.mark.parametrize("chosen", SETS)
def test_the_settings_of_every_set_are_settings(chosen: str) -> None:
    Settings.model_validate(rendered(SETS[chosen]).settings)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"replica": 3}, "replica"),
        ({"config": {"group-id": "x"}}, "group-id"),
        ({"config": {"topics": {"ingres": "x"}}}, "ingres"),
        ({"config": {"retry": {"groups": {"g": {"polcy": "levels"}}}}}, "polcy"),
        ({"config": {"store": "sqlite"}}, "config/store"),
        ({"config": {"kafka": {"sasl.username": 42_798}}}, "config/kafka/sasl.username"),
        ({"config": {"instance_id": "mine"}}, "config/instance_id"),
        ({"config": {"data_dir": "./data"}}, "config/data_dir"),
        ({"config": {"admin": {"port": 80}}}, "config/admin/port"),
        ({"config": {"admin": {"token": "open sesame"}}}, "config/admin/token"),
        ({"config": {"topics": {"partitions": 0}}}, "config/topics/partitions"),
        ({"credentials": {"sasl": {"password": "x"}}}, "password"),
        ({"image": {"digest": "latest"}}, "image/digest"),
        ({"audit": {"spark": {"master": "yarn"}}}, "audit/spark/master"),
        ({"podSecurityContexts": {}}, "podSecurityContexts"),
    ],
)
def test_a_value_that_is_unknown_or_cannot_be_is_refused_by_name(
    wrong: dict[str, Any], named: str
) -> None:
    """Helm 3 and Helm 4 word it differently."""
    said = refusal(wrong)
    if "/" in named:
        assert f"at '/{named}'" in said or f"- {named.replace('/', '.')}: " in said
    else:
        assert f"'{named}' not allowed" in said or f"property {named} is not allowed" in said


def test_every_value_is_read_by_a_template() -> None:
    templates = "".join(path.read_text() for path in (CHART / "templates").iterdir())
    unread = [
        ".".join(value.path)
        for value in documented(CHART / "values.yaml")
        if value.path[0] not in {"config", "global"} and value.default is not None
        if not re.search(rf'[."]{re.escape(value.path[-1])}\b', templates)
    ]
    assert unread == []
