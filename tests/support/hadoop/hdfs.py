"""HDFS as local processes: a name node and a data node over a folder."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from proxy.embedded.server import pick_free
from tests.support.hadoop.hadoop_server import (
    HOST,
    HadoopServer,
    answer,
    hadoop_environment,
    java_command,
    write_site,
)

NAME_NODE: Final = "org.apache.hadoop.hdfs.server.namenode.NameNode"
DATA_NODE: Final = "org.apache.hadoop.hdfs.server.datanode.DataNode"
FORMAT_TIMEOUT_S: Final = 240
FOLDER_TIMEOUT_S: Final = 240
WEB_HDFS: Final = "/webhdfs/v1"
STATE: Final = "/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"


@dataclass(frozen=True, slots=True)
class Hdfs:
    uri: str
    conf: Path
    web_port: int

    def names(self, path: str) -> list[str]:
        asked = f"{WEB_HDFS}{quote(path)}?op=LISTSTATUS"
        found = answer(self.web_port, asked, timeout_s=FOLDER_TIMEOUT_S)
        assert found, f"HDFS has no folder {path}, or does not say within {FOLDER_TIMEOUT_S} s"
        return [one["pathSuffix"] for one in found["FileStatuses"]["FileStatus"]]


@contextmanager
def running_hdfs(folder: Path) -> Iterator[Hdfs]:
    port, web_port = pick_free(HOST), pick_free(HOST)
    hdfs = Hdfs(f"hdfs://{HOST}:{port}", folder / "conf", web_port)
    hdfs.conf.mkdir(parents=True)
    write_site(hdfs.conf / "core-site.xml", _core_settings(hdfs.uri, folder))
    write_site(hdfs.conf / "hdfs-site.xml", _hdfs_settings(web_port))
    _format(hdfs.conf)
    name_node = HadoopServer(NAME_NODE, hdfs.conf, folder / "name-node.log")
    data_node = HadoopServer(DATA_NODE, hdfs.conf, folder / "data-node.log")
    try:
        name_node.await_ready(lambda: _live_data_nodes(web_port) is not None)
        data_node.await_ready(lambda: _live_data_nodes(web_port) == 1)
        yield hdfs
    finally:
        data_node.stop()
        name_node.stop()


def _core_settings(uri: str, folder: Path) -> dict[str, str]:
    return {
        "fs.defaultFS": uri,
        "hadoop.tmp.dir": str(folder / "data"),
        # Clients without a server end soon, for example after a killed test.
        "ipc.client.connect.max.retries": "2",
        "ipc.client.connect.retry.interval": "500",
        "hadoop.service.shutdown.timeout": "5s",
    }


def _hdfs_settings(web_port: int) -> dict[str, str]:
    """Return settings with one replica on 127.0.0.1. They are fast and not safe against a power
    cut."""
    return {
        "dfs.replication": "1",
        "dfs.namenode.http-address": f"{HOST}:{web_port}",
        "dfs.datanode.hostname": HOST,
        "dfs.datanode.address": f"{HOST}:0",
        "dfs.datanode.ipc.address": f"{HOST}:0",
        "dfs.datanode.http.address": f"{HOST}:0",
        "dfs.namenode.datanode.registration.ip-hostname-check": "false",
        "dfs.namenode.safemode.extension": "0",
        "dfs.namenode.edits.noeditlogchannelflush": "true",
    }


def _format(conf: Path) -> None:
    done = subprocess.run(
        [*java_command(NAME_NODE, conf), "-format", "-nonInteractive"],
        env=hadoop_environment(conf),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=FORMAT_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"HDFS could not be formatted:\n{done.stdout}{done.stderr}"


def _live_data_nodes(web_port: int) -> int | None:
    found = answer(web_port, STATE)
    beans = found["beans"] if found else []
    return int(beans[0]["NumLiveDataNodes"]) if beans else None
