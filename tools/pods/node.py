"""The node: its root, network and configuration files."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from tests.support.chart.rendering import NAMESPACE
from tools.install.api import Document
from tools.pods import cgroups
from tools.pods.images import PAUSE

NAME: Final = "node"
ADDRESS: Final = "10.99.0.1"
PODS: Final = "10.99.0.0/16"
SERVICES: Final = "10.0.0.0/24"
DOMAIN: Final = "cluster.local"
BRIDGE: Final = "pods0"
SOCKET: Final = "/run/containerd/containerd.sock"
CONFIGURATION: Final = Path("/etc/kubernetes")
PROGRAMS: Final = Path("/usr/local/bin")
VOLUMES: Final = Path("/var/lib/volumes")
ON_DISK: Final = (Path("/var/lib/containerd"), VOLUMES)
"""Folders of the node that lie in the run's folder: containerd cannot use an overlay."""
VOLUME_COUNT: Final = 6
VOLUME_SIZE: Final = "10Gi"
SYSCTLS: Final = {
    "kernel/keys/root_maxbytes": 25_000_000,
    "kernel/keys/root_maxkeys": 1_000_000,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
}
"""Values that the kubelet insists on. It sees files with them. The machine keeps its own."""


@dataclass(frozen=True, slots=True)
class Node:
    folder: Path
    """Folder of this run."""
    base: Path
    """Root made of Debian packages. It is not changed."""

    @property
    def root(self) -> Path:
        return self.folder / "root"

    def inside(self, path: Path) -> Path:
        return self.root / path.relative_to("/")

    def command(self, name: str, *arguments: str) -> list[str]:
        """Return a command that runs in the node's root."""
        return ["chroot", str(self.root), name, *arguments]

    def preparation(self, found: Iterable[cgroups.Hierarchy], programs: Mapping[str, Path]) -> str:
        """Return the script that makes the root and the network. It runs in new name spaces."""
        return "\n".join(
            [
                *self._mounts(),
                *self._control_groups(found),
                *self._kernel_settings(),
                *self._shown(programs),
                f"mount --make-rshared {_q(self.root)}",
                *_network(),
            ]
        )

    def _mounts(self) -> Iterator[str]:
        upper, work = self.folder / "upper", self.folder / "work"
        yield f"mkdir -p {_q(self.root)} {_q(upper)} {_q(work)}"
        options = f"lowerdir={self.base},upperdir={upper},workdir={work}"
        yield f"mount -t overlay -o {_q(options)} overlay {_q(self.root)}"
        for path in ON_DISK:
            place = self.folder / path.name
            yield f"mkdir -p {_q(place)} {_q(self.inside(path))}"
            yield f"mount --bind {_q(place)} {_q(self.inside(path))}"
        for number in range(VOLUME_COUNT):
            yield f"mkdir {_q(self.inside(VOLUMES / str(number)))}"
        yield f"mount -t proc proc {_q(self.root / 'proc')}"
        yield f"mount -t sysfs -o ro sysfs {_q(self.root / 'sys')}"
        yield f"mount --rbind /dev {_q(self.root / 'dev')}"
        yield f"mount -t tmpfs tmpfs {_q(self.root / 'dev/shm')}"
        yield f"mount -t tmpfs tmpfs {_q(self.root / 'run')}"

    def _control_groups(self, found: Iterable[cgroups.Hierarchy]) -> Iterator[str]:
        above = self.root / "sys/fs/cgroup"
        yield f"mount -t tmpfs tmpfs {_q(above)}"
        for hierarchy in found:
            place = above / hierarchy.mounted.name
            yield f"mkdir {_q(place)}"
            yield f"mount -t cgroup -o {hierarchy.options} cgroup {_q(place)}"

    def _kernel_settings(self) -> Iterator[str]:
        """Show the values that the kubelet wants, and let no program change the machine's. Only
        the settings of the network belong to the node."""
        settings = self.root / "proc/sys"
        yield f"mount --bind {_q(settings)} {_q(settings)}"
        yield f"mount -o remount,bind,ro {_q(settings)}"
        yield f"mount --bind {_q(settings / 'net')} {_q(settings / 'net')}"
        yield f"mount -o remount,bind,rw {_q(settings / 'net')}"
        for name, value in SYSCTLS.items():
            shown = self.folder / name.replace("/", "-")
            yield f"echo {value} > {_q(shown)}"
            yield f"mount --bind {_q(shown)} {_q(settings / name)}"

    def _shown(self, programs: Mapping[str, Path]) -> Iterator[str]:
        for name, path in programs.items():
            place = self.inside(PROGRAMS / name)
            yield f"touch {_q(place)}"
            yield f"mount --bind {_q(path)} {_q(place)}"
        for name, text in _names().items():
            place = self.root / "etc" / name
            yield f"rm -f {_q(place)}"
            yield f"printf {_q(text)} > {_q(place)}"
            yield f"mount --bind {_q(place)} /etc/{name}"

    def write(self) -> None:
        """Write the programs' configuration files."""
        files = {
            CONFIGURATION / "kubelet.yaml": yaml.safe_dump(kubelet()),
            CONFIGURATION / "kube-proxy.yaml": yaml.safe_dump(KUBE_PROXY),
            Path("/etc/cni/net.d/10-pods.conflist"): json.dumps(POD_NETWORK),
            Path("/etc/containerd/config.toml"): CONTAINERD,
        }
        for path, text in files.items():
            self.inside(path).parent.mkdir(parents=True, exist_ok=True)
            self.inside(path).write_text(text, "utf-8")

    def log_of(self, namespace: str, pod: str, container: str) -> str:
        """Return what a container has printed, from the newest of its logs."""
        folders = self.inside(Path("/var/log/pods")).glob(f"{namespace}_{pod}_*/{container}")
        files = [file for folder in folders for file in folder.glob("*.log")]
        if not files:
            return ""
        text = max(files, key=lambda file: file.stat().st_mtime).read_text("utf-8", "replace")
        return "\n".join(line.split(" ", 3)[-1] for line in text.splitlines())


def _names() -> dict[str, str]:
    hosts = f"127.0.0.1 localhost\\n{ADDRESS} {NAME}\\n"
    return {"hosts": hosts, "resolv.conf": f"nameserver {ADDRESS}\\n"}


def _network() -> Iterator[str]:
    """A bridge without a way out."""
    yield f"hostname {NAME}"
    yield "ip link set lo up"
    yield f"ip link add {BRIDGE} type bridge"
    yield f"ip addr add {ADDRESS}/16 dev {BRIDGE}"
    yield f"ip link set {BRIDGE} up"
    yield f"ip route add default dev {BRIDGE}"
    yield "echo 1 > /proc/sys/net/ipv4/ip_forward"
    yield "echo 1 > /proc/sys/net/bridge/bridge-nf-call-iptables"


def _q(path: Path | str) -> str:
    return shlex.quote(str(path))


POD_NETWORK: Final[Document] = {
    "cniVersion": "0.4.0",
    "name": "pods",
    "plugins": [
        {
            "type": "bridge",
            "bridge": BRIDGE,
            "hairpinMode": True,
            "ipam": {
                "type": "host-local",
                "dataDir": "/run/cni",
                "ranges": [[{"subnet": PODS, "rangeStart": "10.99.1.1", "gateway": ADDRESS}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }
    ],
}
KUBE_PROXY: Final[Document] = {
    "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
    "kind": "KubeProxyConfiguration",
    "mode": "nftables",
    "hostnameOverride": NAME,
    "clientConnection": {"kubeconfig": str(CONFIGURATION / "kube-proxy.kubeconfig")},
    "clusterCIDR": PODS,
    # No limits of connections, because they are the machine's.
    "conntrack": {
        "maxPerCore": 0,
        "min": 0,
        **dict.fromkeys(("tcpEstablishedTimeout", "tcpCloseWaitTimeout"), "0s"),
    },
}
CONTAINERD: Final = f"""\
version = 2
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.tracing.processor.v1.otlp"]
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
"""
"""Without `restrict_oom_score_adj` pods cannot start where CAP_SYS_RESOURCE is missing."""


def kubelet() -> Document:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": ADDRESS,
        "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True}},
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,
        "failSwapOn": False,
        "protectKernelDefaults": True,
        "clusterDNS": [ADDRESS],
        "clusterDomain": DOMAIN,
        "resolvConf": "",
        # A deleted image cannot be pulled again.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "200Mi", "nodefs.available": "1Gi"},
        "nodeStatusUpdateFrequency": "5s",
    }


def corefile(kubeconfig: Path) -> str:
    return f"""\
.:53 {{
  bind {ADDRESS}
  errors
  kubernetes {DOMAIN} {{
    kubeconfig {kubeconfig}
    ttl 1
  }}
}}
"""


def volumes() -> Iterator[Document]:
    """Yield the volumes. Claims without a class find them."""
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [NAME]}
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}}
    for number in range(VOLUME_COUNT):
        spec: dict[str, Any] = {
            "capacity": {"storage": VOLUME_SIZE},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": str(VOLUMES / str(number))},
            "nodeAffinity": affinity,
        }
        metadata = {"name": f"volume-{number}"}
        kind = {"apiVersion": "v1", "kind": "PersistentVolume"}
        yield {**kind, "metadata": metadata, "spec": spec}


def namespaces() -> Iterator[Document]:
    enforced = {"pod-security.kubernetes.io/enforce": "restricted"}
    metadata = {"name": NAMESPACE, "labels": enforced}
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
