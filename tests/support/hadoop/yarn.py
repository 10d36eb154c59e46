"""YARN as local processes: a resource manager and a node manager beside HDFS."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from proxy.embedded.server import pick_free
from tests.support.hadoop.hadoop_server import HOST, HadoopServer, answer, write_site
from tests.support.hadoop.hdfs import Hdfs

RESOURCE_MANAGER: Final = "org.apache.hadoop.yarn.server.resourcemanager.ResourceManager"
NODE_MANAGER: Final = "org.apache.hadoop.yarn.server.nodemanager.NodeManager"
SCHEDULER: Final = "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fifo.FifoScheduler"
NODE_MEMORY_MB: Final = 8192
"""Memory that containers may request. They use less than that."""
ADDRESSES: Final = ("address", "scheduler.address", "resource-tracker.address", "admin.address")
"""Addresses of the resource manager, without its web pages."""
DISK_CHECK: Final = "yarn.nodemanager.disk-health-checker"
METRICS: Final = "/ws/v1/cluster/metrics"


@dataclass(frozen=True, slots=True)
class Yarn:
    conf: Path
    containers: Path

    def outputs(self, name: str) -> list[str]:
        files = sorted(self.containers.glob(f"*/*/{name}"), key=lambda file: file.stat().st_mtime)
        return [file.read_text("utf-8", "replace") for file in files]


@contextmanager
def running_yarn(hdfs: Hdfs, folder: Path) -> Iterator[Yarn]:
    """Run YARN with one node and its data in the empty `folder`, inside the block. YARN's settings
    are written into the folder of HDFS's settings. HADOOP_CONF_DIR can name this folder for clients
    of HDFS and YARN."""
    folder.mkdir(parents=True, exist_ok=True)
    web_port = pick_free(HOST)
    yarn = Yarn(hdfs.conf, folder / "containers")
    write_site(yarn.conf / "yarn-site.xml", _settings(web_port, yarn.containers))
    resources = HadoopServer(RESOURCE_MANAGER, yarn.conf, folder / "resource-manager.log")
    node = HadoopServer(NODE_MANAGER, yarn.conf, folder / "node-manager.log")
    try:
        resources.await_ready(lambda: _active_nodes(web_port) is not None)
        node.await_ready(lambda: _active_nodes(web_port) == 1)
        yield yarn
    finally:
        node.stop()
        resources.stop()


def _settings(web_port: int, containers: Path) -> dict[str, str]:
    return {
        **{f"yarn.resourcemanager.{name}": f"{HOST}:{pick_free(HOST)}" for name in ADDRESSES},
        "yarn.resourcemanager.webapp.address": f"{HOST}:{web_port}",
        "yarn.resourcemanager.scheduler.class": SCHEDULER,
        # Clients of a stopped server end soon, for example containers of a killed test.
        "yarn.resourcemanager.connect.max-wait.ms": "3000",
        "yarn.resourcemanager.connect.retry-interval.ms": "500",
        "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms": "100",
        "yarn.scheduler.minimum-allocation-mb": "128",
        "yarn.nodemanager.address": f"{HOST}:0",
        "yarn.nodemanager.localizer.address": f"{HOST}:0",
        "yarn.nodemanager.collector-service.address": f"{HOST}:0",
        "yarn.nodemanager.webapp.address": f"{HOST}:0",
        "yarn.nodemanager.log-dirs": str(containers),
        "yarn.nodemanager.resource.memory-mb": str(NODE_MEMORY_MB),
        "yarn.nodemanager.vmem-check-enabled": "false",
        # Disks are checked once even with the checker off. A disk at 91 % would count as full.
        f"{DISK_CHECK}.enable": "false",
        f"{DISK_CHECK}.max-disk-utilization-per-disk-percentage": "100",
    }


def _active_nodes(web_port: int) -> int | None:
    found = answer(web_port, METRICS)
    return int(found["activeNodes"]) if found else None
