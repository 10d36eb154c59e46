"""Kafka broker of the tests: the broker that an environment variable names, a container, or the
embedded broker."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from docker.errors import DockerException
from testcontainers.core.container import DockerContainer

from proxy.embedded import EmbeddedBroker
from proxy.embedded.jars import kafka_version
from proxy.embedded.server import pick_free, server_properties
from tests.support.records import broker_answers
from tests.support.waiting import wait_for

NAMED_BY = "KAFKA_BOOTSTRAP_SERVERS"
INSIDE_PORT, INSIDE_CONTROLLER_PORT = 9092, 9093
START_TIMEOUT_S = 360


@contextmanager
def any_broker(folder: Path) -> Iterator[str]:
    """Yield the bootstrap servers of a broker with transactions and compaction."""
    named = os.environ.get(NAMED_BY)
    container = None if named else _container()
    if named:
        yield named
    elif container:
        with container as running:
            yield _await_container(running)
    else:
        with EmbeddedBroker(folder) as broker:
            yield broker.bootstrap_servers


def _container() -> DockerContainer | None:
    """Return a container of Kafka's image, not started, or None without Docker."""
    try:
        container = DockerContainer(f"apache/kafka:{kafka_version()}")
    except DockerException:
        return None
    port = pick_free("127.0.0.1")
    for name, value in container_settings(container.get_container_host_ip(), port).items():
        container.with_env(name, value)
    return container.with_bind_ports(INSIDE_PORT, port)


def container_settings(host: str, port: int) -> dict[str, str]:
    listeners = f"PLAINTEXT://:{INSIDE_PORT},CONTROLLER://:{INSIDE_CONTROLLER_PORT}"
    properties = server_properties(
        "localhost",
        INSIDE_PORT,
        INSIDE_CONTROLLER_PORT,
        Path("/tmp/kafka-logs"),  # noqa: S108 (a path inside the container)
        {"listeners": listeners, "advertised.listeners": f"PLAINTEXT://{host}:{port}"},
    )
    return {f"KAFKA_{name.upper().replace('.', '_')}": text for name, text in properties.items()}


def _await_container(running: DockerContainer) -> str:
    host, port = running.get_container_host_ip(), running.get_exposed_port(INSIDE_PORT)
    bootstrap = f"{host}:{port}"
    wait_for(lambda: broker_answers(bootstrap), START_TIMEOUT_S, "the container's broker")
    return bootstrap
