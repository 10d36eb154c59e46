"""Kafka with the environment from compose.yaml, run from the embedded broker's jars. The image
`apache/kafka` turns the variables `KAFKA_…` into properties, with a dot for each underscore. This
module does the same. Only host names, ports and the folder differ from compose.yaml."""

import subprocess
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from proxy.embedded.jars import ensure_jars, java
from proxy.embedded.server import GuardedProcess, as_text, new_cluster_id, pick_free
from tools.image.holding import await_that, held

LISTENERS: Final = {"HOST": "9092", "INSIDE": "29092", "CONTROLLER": "9093"}
START_LIMIT_S: Final = 120.0
ASK_LIMIT_S: Final = 2.0


def compose_environment(file: Path) -> dict[str, str]:
    services: Any = yaml.safe_load(file.read_text("utf-8"))["services"]
    return dict(services["kafka"]["environment"])


def starts_with(environment: Mapping[str, str], folder: Path) -> Iterator[str]:
    folder.mkdir()
    ports = {name: str(pick_free("127.0.0.1")) for name in LISTENERS}
    file = folder / "server.properties"
    file.write_text(as_text(_here(_properties(environment), ports, folder / "data")), "utf-8")
    classpath = ":".join(map(str, ensure_jars()))
    tool = ["kafka.tools.StorageTool", "format", "-t", new_cluster_id(), "-c", str(file)]
    made = [str(java()), "-cp", classpath, *tool]
    formatted = subprocess.run(made, capture_output=True, text=True, check=False)
    held(formatted.returncode == 0, formatted.stdout + formatted.stderr)
    log, began = folder / "kafka.log", time.monotonic()
    with log.open("wb") as output:
        command = [str(java()), "-Xmx512m", "-cp", classpath, "kafka.Kafka", str(file)]
        kafka = GuardedProcess(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        for name in ("HOST", "INSIDE"):
            await_that(partial(_answers, ports[name]), START_LIMIT_S, log)
    finally:
        kafka.stop()
    yield f"Kafka answers on HOST and INSIDE, {time.monotonic() - began:.0f} s after its start"


def _properties(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name.removeprefix("KAFKA_").lower().replace("_", "."): value
        for name, value in environment.items()
    }


def _here(properties: Mapping[str, str], ports: Mapping[str, str], data: Path) -> dict[str, str]:
    here = {**properties, "log.dirs": str(data)}
    for name in ("listeners", "advertised.listeners", "controller.quorum.voters"):
        for listener, port in LISTENERS.items():
            here[name] = here[name].replace(f":{port}", f":{ports[listener]}")
        here[name] = here[name].replace("//kafka:", "//localhost:")
    return here


def _answers(port: str) -> bool:
    admin = AdminClient({"bootstrap.servers": f"localhost:{port}", "log_level": 0})
    try:
        brokers = admin.list_topics(timeout=ASK_LIMIT_S).brokers.values()
    except KafkaException:
        return False
    return [str(broker.port) for broker in brokers] == [port]
