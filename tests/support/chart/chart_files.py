"""Generator of the chart's derived files: `python -m tests.support.chart.chart_files`.

It writes the section `config` of `values.yaml`, from the proxy's `default.yaml`. It writes
`values.schema.json`, from the models of `chart_values`. Tests compare the files with its output.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from proxy.config.sources import DEFAULT_FILE
from tests.support.chart.chart_comments import documented
from tests.support.chart.chart_values import ChartValues

CHART: Final = Path(__file__).parents[3] / "helm" / "kafka-delay-proxy"
CONFIG_HEAD: Final = """\
# The settings of the proxy. They become its settings file, a ConfigMap that everybody in the
# namespace can read. Put passwords and tokens into `credentials` instead. A change here restarts
# the pods, one after the other.
config:
"""
IN_A_POD: Final = {
    "bootstrap.servers: localhost:9092": (
        "The brokers: host:port. Write several as one string with commas between them.",
        "bootstrap.servers: kafka:9092",
    ),
    "workers: 1": (
        "Worker processes of a pod. auto = one for each whole core of `resources.limits.cpu`.",
        "workers: 1",
    ),
    "instance_id: null": (
        "Always null. A pod's own name is used. It stays the same after a restart.",
        "instance_id: null",
    ),
    "data_dir: ./data": (
        "Folder of the schedule, on the pod's volume. If it is lost, it is rebuilt from Kafka.",
        "data_dir: /data",
    ),
    "host: 127.0.0.1": (
        "Address to listen on. Probes and Prometheus need all addresses (0.0.0.0, or :: for IPv6).",
        "host: 0.0.0.0",
    ),
    "port: 9464": ("Port, 1024 or higher.", "port: 9464"),
    "peers: []": (
        "Admin ports of all instances (docs/admin-api.md#all-instances). Empty = all pods.",
        "peers: []",
    ),
    "token: null": ("Always null. Use `credentials.adminToken`.", "token: null"),
}
"""Settings that differ in a pod: line of default.yaml -> comment and line for a pod."""
WIDTH: Final = 98
MEAN_NOTHING: Final = {"title", "default", "description", "format", "gt", "le"}
"""Keywords that are useless for the values, or that JSON Schema does not know."""
AMENDED: Final[dict[str, dict[str, Any]]] = {
    "instance_id": {"type": "null"},
    "data_dir": {"type": "string", "pattern": "^/."},
    "workers": {"anyOf": [{"type": "integer", "minimum": 1}, {"const": "auto"}]},
    "kafka": {
        "minProperties": 1,
        "required": ["bootstrap.servers"],
        "patternProperties": {"(username|password|secret|client[.]id)$": {"type": "string"}},
    },
}
AMENDED_ADMIN: Final[dict[str, dict[str, Any]]] = {
    "token": {"type": "null"},
    "port": {"type": "integer", "minimum": 1024, "maximum": 65_535},
}

DESCRIBED: Final = {
    "RetryGroupSettings": {
        "policy": "`levels`, `exponential` (doubled each time) or `custom` (`delays`).",
        "first_level": "Delay level of the first retry, with `levels`.",
        "max_attempts": "Limit of retries of a record.",
        "first_delay": "Delay of the first retry, with `exponential`.",
        "max_delay": "Longest delay, with `exponential`.",
        "delays": "Delays of the retries, with `custom`. The last one repeats.",
    },
    "OverdueSettings": {
        "targets": "Shell pattern of targets.",
        "older_than": "Lateness from which the action applies.",
        "action": "`deliver`, `dead-letter` or `drop`.",
    },
    "RoleToken": {
        "role": "`metrics`, `viewer`, `operator` or `admin`.",
        "contents": "Let a viewer read keys, values and headers.",
        "trusted": "It is the token of a proxy that authenticates users (`trusted_header`).",
        "existingSecret": "Name of the Secret.",
        "key": "Key of the token.",
    },
    "AdminToken": {
        "role": "`metrics`, `viewer`, `operator` or `admin`.",
        "file": "File with the token, in the pod.",
        "contents": "Let a viewer read keys, values and headers.",
        "trusted": "It is the token of a proxy that authenticates users (`trusted_header`).",
    },
}
"""Descriptions of keys that `values.yaml` shows in examples only."""


def config_section() -> str:
    _, _, settings = DEFAULT_FILE.read_text("utf-8").partition("\n\n")
    lines: list[str] = []
    for line in settings.splitlines():
        lines += _in_a_pod(lines, line) if line.strip() in IN_A_POD else [line]
    return CONFIG_HEAD + "".join(f"  {line}".rstrip() + "\n" for line in lines)


def _in_a_pod(above: list[str], line: str) -> list[str]:
    while above and above[-1].lstrip().startswith("#"):
        above.pop()
    comment, said = IN_A_POD[line.strip()]
    indent = line[: len(line) - len(line.lstrip())]
    return [*textwrap.wrap(comment, WIDTH - len(indent) - 4, **_as_comment(indent)), indent + said]


def _as_comment(indent: str) -> dict[str, Any]:
    return {"initial_indent": f"{indent}# ", "subsequent_indent": f"{indent}# "}


def values() -> str:
    written = (CHART / "values.yaml").read_text("utf-8")
    begin, end = written.index(CONFIG_HEAD[:27]), written.index("# Names of Secrets in the")
    return written[:begin] + config_section() + "\n" + written[end:]


def schema() -> str:
    """Return `values.schema.json` in draft 7, which Helm 3 and Helm 4 read."""
    template = "#/definitions/{model}"
    made = ChartValues.model_json_schema(by_alias=True, ref_template=template)
    definitions = made["definitions"] = made.pop("$defs")
    for name, amended in AMENDED.items():
        definitions["Settings"]["properties"][name].pop("anyOf", None)
        definitions["Settings"]["properties"][name].update(amended)
    for name, amended in AMENDED_ADMIN.items():
        definitions["AdminSettings"]["properties"][name] = amended
    dialect = {"$schema": "http://json-schema.org/draft-07/schema#"}
    whole = {**dialect, **_plain(made)}
    _describe(whole)
    _let_pass(whole)
    return json.dumps(whole, indent=2) + "\n"


def _describe(whole: dict[str, Any]) -> None:
    """Add the comments of `values.yaml`, which an editor shows."""
    for value in documented(CHART / "values.yaml"):
        if properties := _section(whole, value.path[:-1]).get("properties"):
            properties[value.path[-1]]["description"] = " ".join(value.said.split())
    for name, described in DESCRIBED.items():
        for key, said in described.items():
            whole["definitions"][name]["properties"][key]["description"] = said


def _let_pass(whole: dict[str, Any]) -> None:
    """Allow names that other charts give to values. The templates refuse these names with a clearer
    message."""
    names = yaml.safe_load((CHART / "files" / "other-names.yaml").read_text("utf-8"))
    for *section, name in (other.split(".") for other in names):
        above = _section(whole, section)
        if above.get("additionalProperties") is False:
            above.setdefault("patternProperties", {})[f"^{name}$"] = {}


def _section(whole: dict[str, Any], path: Sequence[str]) -> dict[str, Any]:
    section = whole
    for name in path:
        section = section["properties"][name]
        _, _, definition = section.get("$ref", "").rpartition("/")
        section = whole["definitions"].get(definition, section)
    return section


def _plain(node: Any, *, is_names: bool = False) -> Any:
    """Remove keywords of MEAN_NOTHING. Keys under `properties` are names, not keywords."""
    if isinstance(node, list):
        return [_plain(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        key: _plain(value, is_names=not is_names and key in {"properties", "definitions"})
        for key, value in node.items()
        if is_names or key not in MEAN_NOTHING
    }


def write() -> None:
    (CHART / "values.yaml").write_text(values(), "utf-8")
    (CHART / "values.schema.json").write_text(schema(), "utf-8")


if __name__ == "__main__":
    write()
