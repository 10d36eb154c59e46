"""Installation of the chart into an API server of its own: `python -m tools.install`."""

from __future__ import annotations

import signal
import sys
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import FrameType

import yaml

from tests.support.chart.rendering import NAMESPACE, HelmMissing
from tests.support.waiting import wait_for
from tools.install import judged
from tools.install.api import Api, Refused
from tools.install.control_plane import control_plane, kubeconfig
from tools.install.controllers import Controllers
from tools.install.go_built import NotBuilt
from tools.install.helm import Helm, HelmRefused, version
from tools.install.tools import ToolMissing, tools
from tools.install.trial import Trial

CRDS = Path(__file__).with_name("crds.yaml")
KNOWN_WITHIN_S = 30


def main() -> int:
    """Return 0 if all trials succeeded, 1 if a trial failed, 3 if this machine cannot run them."""
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, _leave)
    try:
        found = tools()
        with tempfile.TemporaryDirectory(prefix="chart-install-") as folder:
            _play(found, Path(folder))
    except (ToolMissing, NotBuilt) as missing:
        print(f"Not tried: {missing}", file=sys.stderr)
        return 3
    except (AssertionError, HelmMissing, HelmRefused, Refused) as failed:
        print(f"Not held: {failed}", file=sys.stderr)
        return 1
    say("Held.")
    return 0


def say(text: str) -> None:
    print(text, flush=True)


def _leave(_signal: int, _frame: FrameType | None) -> None:
    """Exit, so that running processes are ended and removed."""
    sys.exit(1)


def _play(found: Mapping[str, Path], folder: Path) -> None:
    with control_plane(found, folder) as api:
        helm = Helm(kubeconfig(api, folder / "kubeconfig"))
        say(f"API server {api.version()}, Helm {version()}")
        _prepare(api)
        say(judged.manifests(api, NAMESPACE))
        say(judged.pods(api))
        controllers = Controllers(api)
        with controllers.at_work():
            Trial(api, helm, controllers, say).run(folder)


def _prepare(api: Api) -> None:
    """Create objects that a cluster has before the chart."""
    definitions = list(yaml.safe_load_all(CRDS.read_text("utf-8")))
    for definition in definitions:
        api.create(definition)
    enforced = {"pod-security.kubernetes.io/enforce": "restricted"}
    for metadata in ({"name": NAMESPACE}, {"name": judged.RESTRICTED, "labels": enforced}):
        api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    before = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "before"}}
    api.create(before, NAMESPACE)
    priority = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1000}
    api.create({**priority, "metadata": {"name": "high"}})
    for definition in definitions:
        group, kind = definition["spec"]["group"], definition["spec"]["names"]["kind"]
        wait_for(partial(api.knows, f"{group}/v1", kind), KNOWN_WITHIN_S, kind)


if __name__ == "__main__":
    sys.exit(main())
