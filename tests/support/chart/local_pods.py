"""Rendered pods as local processes, as far as a machine without a kubelet allows. Command,
arguments, variables and probes come from the rendered chart. A volume is a folder, and paths below
its mount become paths below that folder. Each pod has its own port instead of its own address."""

from __future__ import annotations

import json
import os
import sys
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from proxy.config.sources import ENV_PREFIX
from proxy.embedded.server import pick_free
from tests.support.installation.admin_page import admin_page

HERE: Final = "127.0.0.1"
DATA: Final = "data"
"""Volume of `data_dir`."""
PROBES: Final = {"startupProbe", "livenessProbe", "readinessProbe"}
PROGRAMS: Final = {"kafka-delay-proxy": [sys.executable, "-m", "proxy"]}
"""Entry point of the image in this checkout."""

Document = Mapping[str, Any]
Secrets = Mapping[str, Mapping[str, str]]
"""Texts by name of the Secret and key."""


@dataclass(frozen=True, slots=True)
class LocalPod:
    name: str
    command: list[str]
    environment: dict[str, str]
    folder: Path
    admin_port: int
    probes: dict[str, str]

    def passes(self, probe: str = "readinessProbe") -> bool:
        return self.get(self.probes[probe])[0] == 200

    def shards(self) -> int:
        """Return the number of served shards, or -1 if the pod is not ready."""
        status, said = self.get(self.probes["readinessProbe"])
        return int(json.loads(said)["shards"]) if status == 200 else -1

    def get(self, path: str) -> tuple[int, str]:
        """Return status and body of an admin page. Status 0 means no answer."""
        return admin_page(self.admin_port, path)


class Node:
    def __init__(self, folder: Path, documents: Sequence[Document], secrets: Secrets) -> None:
        made = {one["metadata"]["name"]: _decoded(one) for one in documents if _is_secret(one)}
        self._folder, self._secrets = folder, {**made, **secrets}
        named = [one for one in documents if one["kind"] == "ConfigMap"]
        self._configs = {one["metadata"]["name"]: one.get("data", {}) for one in named}

    def pods(self, stateful_set: Document) -> list[LocalPod]:
        name, count = stateful_set["metadata"]["name"], stateful_set["spec"]["replicas"]
        spec = stateful_set["spec"]["template"]["spec"]
        return [self.pod(f"{name}-{number}", spec) for number in range(count)]

    def pod(self, name: str, spec: Document) -> LocalPod:
        container = spec["containers"][0]
        folder = self._folder / name
        mounts = self._mounted(folder, spec, container)
        said = [_local(text, mounts) for text in (*container["command"], *container["args"])]
        port = pick_free(HERE)
        variables = {one["name"]: self._variable(one, name, mounts) for one in container["env"]}
        kept = {key: text for key, text in os.environ.items() if not key.startswith(ENV_PREFIX)}
        here = {
            "DELAY_PROXY_DATA_DIR": str(folder / DATA),
            "DELAY_PROXY_ADMIN__HOST": HERE,
            "DELAY_PROXY_ADMIN__PORT": str(port),
        }
        return LocalPod(
            name,
            [*PROGRAMS[said[0]], *said[1:]],
            {**kept, **variables, **here},
            folder,
            port,
            {key: one["httpGet"]["path"] for key, one in container.items() if key in PROBES},
        )

    def _mounted(self, folder: Path, spec: Document, container: Document) -> dict[str, Path]:
        """Return the folder of each mount. A volume that the pod's spec does not list is a volume
        claim."""
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        found = {}
        for mount in container["volumeMounts"]:
            place = folder / mount["name"]
            place.mkdir(parents=True, exist_ok=True)
            volume = volumes.get(mount["name"], {})
            for key, text in self._content(volume).items():
                (place / key).write_text(text, "utf-8")
            found[mount["mountPath"]] = place
        return found

    def _content(self, volume: Document) -> Mapping[str, str]:
        if "configMap" in volume:
            # A ConfigMap that the user makes beforehand is empty here.
            content: Mapping[str, str] = self._configs.get(volume["configMap"]["name"], {})
            return content
        if "secret" in volume:
            secret = self._secrets[volume["secret"]["secretName"]]
            items = volume["secret"].get("items", [{"key": key, "path": key} for key in secret])
            return {item["path"]: secret[item["key"]] for item in items}
        return {}

    def _variable(self, said: Document, pod: str, mounts: Mapping[str, Path]) -> str:
        if "value" in said:
            return _local(said["value"], mounts)
        source = said["valueFrom"]
        if "secretKeyRef" in source:
            return self._secrets[source["secretKeyRef"]["name"]][source["secretKeyRef"]["key"]]
        return {"metadata.name": pod, "status.podIP": HERE}[source["fieldRef"]["fieldPath"]]


def _is_secret(document: Document) -> bool:
    return bool(document["kind"] == "Secret")


def _decoded(secret: Document) -> dict[str, str]:
    return {key: b64decode(text).decode() for key, text in secret["data"].items()}


def _local(text: str, mounts: Mapping[str, Path]) -> str:
    """Replace a path below a mount by a local path. The path may follow `--option=`."""
    option, equals, path = text.rpartition("=")
    for mounted, place in mounts.items():
        if path == mounted or path.startswith(mounted + "/"):
            return f"{option}{equals}{place}{path.removeprefix(mounted)}"
    return text
