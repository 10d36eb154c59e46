"""Hadoop server as a process."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen
from xml.etree import ElementTree as ET

from proxy.embedded.server import GuardedProcess
from spark_jobs.runtime.session import java_home
from tests.support.hadoop.hadoop_jars import hadoop_jars

HOST: Final = "127.0.0.1"
LOGGING: Final = Path(__file__).with_name("log4j2.properties")
JVM: Final = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-Xmx256m",
    "-XX:+ExitOnOutOfMemoryError",
    f"-Dlog4j2.configurationFile={LOGGING.as_uri()}",
    # YARN's web pages use a library that is older than Java's modules.
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
)
START_TIMEOUT_S: Final = 240
ANSWER_TIMEOUT_S: Final = 5
LOOK_EVERY_S: Final = 0.1
SHOWN_LINES: Final = 30


class HadoopServer:
    """JVM of one server with the settings in `conf` and its output in `log`. It starts at once. It
    ends with this process, even if this process is killed."""

    def __init__(self, main_class: str, conf: Path, log: Path) -> None:
        self.name, self._log = main_class.rpartition(".")[2], log
        with log.open("wb") as output:
            self._process = GuardedProcess(
                java_command(main_class, conf),
                environment=hadoop_environment(conf),
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def await_ready(self, is_ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not is_ready():
            is_gone = self._process.exit_code is not None
            if is_gone or time.monotonic() > deadline:
                what = "ended while starting" if is_gone else f"not ready after {START_TIMEOUT_S} s"
                raise AssertionError(f"{self.name}: {what}. Its log ends with:\n{self._tail()}")
            time.sleep(LOOK_EVERY_S)

    def stop(self) -> None:
        self._process.stop()

    def _tail(self) -> str:
        return "\n".join(self._log.read_text("utf-8", "replace").splitlines()[-SHOWN_LINES:])


def java_command(main_class: str, conf: Path) -> list[str]:
    classpath = ":".join(map(str, [conf, *hadoop_jars()]))
    return [str(java_home() / "bin" / "java"), *JVM, "-cp", classpath, main_class]


def hadoop_environment(conf: Path) -> dict[str, str]:
    own = {"JAVA_HOME": str(java_home()), "HADOOP_CONF_DIR": str(conf), "SPARK_LOCAL_IP": HOST}
    return {**os.environ, **own}


def write_site(file: Path, settings: Mapping[str, str]) -> None:
    root = ET.Element("configuration")
    for name, value in settings.items():
        one = ET.SubElement(root, "property")
        ET.SubElement(one, "name").text = name
        ET.SubElement(one, "value").text = value
    ET.ElementTree(root).write(file, "utf-8", xml_declaration=True)


def answer(port: int, path: str, timeout_s: float = ANSWER_TIMEOUT_S) -> Any:
    try:
        with urlopen(f"http://{HOST}:{port}{path}", timeout=timeout_s) as found:
            return json.load(found)
    except (OSError, ValueError):
        return None
