"""The node's programs and the trial: `python -m tools.pods.inside`, in name spaces of its own."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from proxy.embedded import EmbeddedBroker
from tests.support.chart.rendering import NAMESPACE
from tests.support.waiting import wait_for
from tools.install.api import Api, Refused
from tools.install.control_plane import ACCOUNTS_KEY, User, control_plane, kubeconfig, process
from tools.install.helm import Helm, HelmRefused
from tools.pods import cgroups, images, node
from tools.pods.cluster import Cluster
from tools.pods.node import CONFIGURATION, Node
from tools.pods.steps import step
from tools.pods.trial import Trial

ON_NODE: Final = ("kubelet", "kube-proxy", "kube-router")
"""Programs that run in the node's root."""
USERS: Final = {
    "kubelet": User(f"system:node:{node.NAME}", "system:nodes"),
    "kube-controller-manager": User("system:kube-controller-manager", ""),
    "kube-scheduler": User("system:kube-scheduler", ""),
    "kube-proxy": User("system:kube-proxy", ""),
    "kube-router": User("kube-router", "system:masters"),
    "coredns": User("coredns", "system:masters"),
}
READY_WITHIN_S: Final = 180
HOOKS_WITHIN_S: Final = 240


class Arguments(NamedTuple):
    folder: str
    base: str
    layouts: list[str]
    programs: dict[str, str]
    hierarchies: list[tuple[str, list[str]]]


def main() -> int:
    given = Arguments(*json.loads(sys.argv[1]))
    try:
        with ExitStack() as running:
            # The kernel ends all programs with this one. To end them in order takes half a minute.
            os._exit(_told(_run(given, running)))
    except (AssertionError, Refused) as not_started:
        return _told(str(not_started))


def _told(failed: str) -> int:
    print(f"Not held: {failed}" if failed else "Held.", flush=True)
    return int(bool(failed))


def _run(given: Arguments, running: ExitStack) -> str:
    """Start the node and run the trial. Return the failed check, or an empty text."""
    here = Node(Path(given.folder), Path(given.base))
    with step("node") as seen:
        api = _started(here, given, running)
        seen(f"Ready, Kubernetes {api.version()}")
    with step("images") as seen:
        for layout in given.layouts:
            _import(here, Path(layout))
        seen(", ".join(images.TAGS.values()))
    with step("broker"):
        broker = running.enter_context(EmbeddedBroker(here.folder / "broker", host=node.ADDRESS))
    config = kubeconfig(api, here.folder / "admin.kubeconfig")
    helm = Helm(config, HOOKS_WITHIN_S)
    cluster = Cluster(api, here)
    try:
        Trial(cluster, helm, broker.bootstrap_servers).run()
    except (AssertionError, HelmRefused, Refused) as failed:
        print(cluster.report(), file=sys.stderr)
        return str(failed)
    return ""


def _started(here: Node, given: Arguments, running: ExitStack) -> Api:
    found = [cgroups.Hierarchy(Path(path), tuple(names)) for path, names in given.hierarchies]
    programs = {name: Path(path) for name, path in given.programs.items()}
    script = here.preparation(found, {name: programs[name] for name in ON_NODE})
    subprocess.run(["/bin/sh", "-ec", script], check=True)
    here.write()
    start = _Starter(here, running)
    tokens = {name: secrets.token_hex(16) for name in USERS}
    start.node("containerd")
    users = {tokens[name]: user for name, user in USERS.items()}
    api = running.enter_context(control_plane(programs, here.folder, users))
    configs = {name: _config(here, api, name, token) for name, token in tokens.items()}
    _start_control(start, programs, configs, here.folder)
    _start_node(start)
    file = here.folder / "Corefile"
    file.write_text(node.corefile(configs["coredns"]), "utf-8")
    start.plain("coredns", str(programs["coredns"]), "-conf", str(file))
    _prepare(api)
    _start_policies(start)
    return api


class _Starter:
    """Start of programs that end with the block."""

    def __init__(self, here: Node, running: ExitStack) -> None:
        self._here, self._running = here, running

    def node(self, name: str, *arguments: str) -> None:
        self.plain(name, *self._here.command(name, *arguments))

    def plain(self, name: str, *command: str) -> None:
        self._running.enter_context(process(command, self._here.folder, name))


def _config(here: Node, api: Api, name: str, token: str) -> Path:
    file = here.inside(CONFIGURATION / f"{name}.kubeconfig")
    return kubeconfig(replace(api, token=token), file)


def _start_control(
    start: _Starter, programs: dict[str, Path], configs: dict[str, Path], folder: Path
) -> None:
    names = ("kube-controller-manager", "kube-scheduler")
    more = {
        names[0]: [
            f"--service-account-private-key-file={folder / ACCOUNTS_KEY}",
            f"--root-ca-file={folder / 'apiserver.crt'}",
            "--use-service-account-credentials",
        ],
        names[1]: list[str](),
    }
    for name in names:
        alone = [f"--kubeconfig={configs[name]}", "--leader-elect=false"]
        start.plain(name, str(programs[name]), *alone, "--bind-address=127.0.0.1", *more[name])


def _configured(name: str) -> str:
    return f"--kubeconfig={CONFIGURATION / name}.kubeconfig"


def _start_node(start: _Starter) -> None:
    start.node(
        "kubelet",
        _configured("kubelet"),
        f"--config={CONFIGURATION / 'kubelet.yaml'}",
        f"--hostname-override={node.NAME}",
        f"--node-ip={node.ADDRESS}",
    )
    start.node("kube-proxy", f"--config={CONFIGURATION / 'kube-proxy.yaml'}")


def _start_policies(start: _Starter) -> None:
    """Start the program that enforces network policies. It ends if the node is not known yet."""
    start.node(
        "kube-router",
        _configured("kube-router"),
        f"--hostname-override={node.NAME}",
        *("--run-firewall=true", "--run-router=false", "--run-service-proxy=false"),
        *("--run-loadbalancer=false", "--enable-ipv6=false"),
        *("--health-port=0", "--metrics-port=0"),
        f"--service-cluster-ip-range={node.SERVICES}",
    )


def _prepare(api: Api) -> None:
    """Wait for the node, and create what a cluster has before the chart."""
    for document in [*node.namespaces(), *node.volumes()]:
        api.create(document)
    wait_for(lambda: _is_ready(api), READY_WITHIN_S, "the node to be Ready")
    account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"
    wait_for(lambda: _exists(api, account), READY_WITHIN_S, "the default account")


def _is_ready(api: Api) -> bool:
    path = f"/api/v1/nodes/{node.NAME}"
    if not _exists(api, path):
        return False
    found: list[dict[str, Any]] = api.ask("GET", path)["status"].get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in found)


def _exists(api: Api, path: str) -> bool:
    try:
        api.ask("GET", path)
    except Refused:
        return False
    return True


def _import(here: Node, layout: Path) -> None:
    command = here.command("ctr", "--namespace", "k8s.io", "images", "import", "-")
    with images.import_stream(layout) as packed:
        ran = subprocess.run(command, stdin=packed.stdout, capture_output=True, check=False)
    assert ran.returncode == 0, f"containerd took no image: {ran.stderr.decode()}"


if __name__ == "__main__":
    sys.exit(main())
