"""A complete Kafka broker as an object."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from proxy.embedded.jars import kafka_version
from proxy.embedded.server import (
    CHOOSE_PORT,
    QUICK_JVM,
    TAIL_LINES,
    DataFolder,
    KafkaServer,
    alone_as_controller,
    answers,
    explain,
    is_free,
    new_cluster_id,
    pick_free,
    server_properties,
)
from proxy.errors import PortTaken, require

PORT_TRIES = 3
LOOK_EVERY_S = 0.05
GIVEN_UP, FENCED = "because its session has timed out", "fenced=1"
FENCED_WITHIN_S = 30


class EmbeddedBroker(KafkaServer):
    """One Kafka node: broker and controller on one address of this machine.

    Port 0 picks a free port and keeps it for later starts. The JVM ends with this process, even if
    this process is killed.

        with EmbeddedBroker(folder) as broker:
            Producer({"bootstrap.servers": broker.bootstrap_servers})
    """

    def __init__(
        self,
        data_dir: Path | str,
        *,
        port: int = 0,
        host: str = "127.0.0.1",
        overrides: Mapping[str, str] | None = None,
        heap_mb: int = 1024,
        start_timeout_s: float = 60,
    ) -> None:
        super().__init__(DataFolder(Path(data_dir)), heap_mb)
        self.host = host
        self.port = port
        self._overrides = dict(overrides or {})
        self._start_timeout_s = start_timeout_s

    @property
    def bootstrap_servers(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def log_path(self) -> Path:
        return self.folder.log

    def start(self) -> None:
        """Start, and return when clients can produce and consume. Raises ProxyError."""
        if self.is_running:
            return
        require("embedded", "The embedded broker")
        for tries_left in reversed(range(PORT_TRIES if self.port == 0 else 1)):
            picked = self.port or pick_free(self.host)
            try:
                self._start_on(picked)
            except PortTaken:
                if not tries_left:
                    raise
            else:
                self.port = picked
                return

    def wait(self) -> None:
        """Block while the broker runs. Raises BrokerFailed if it ends by itself."""
        if self._process is not None:
            self._process.wait()
            raise self._failure("The embedded broker ended unexpectedly", self.port)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def _start_on(self, port: int) -> None:
        self.claim()
        try:
            if not is_free(self.host, port):
                raise PortTaken(self.host, port, CHOOSE_PORT)
            controller_port = pick_free(self.host)
            properties = server_properties(
                self.host, port, controller_port, self.folder.kafka, self._overrides
            )
            if self.folder.may_be_registered:
                self._fence_predecessor(properties)
            self.configure(properties)
            cluster_id = self.folder.cluster_id()
            if cluster_id is None:
                self.format(cluster_id := new_cluster_id())
            self.folder.version.write_text(kafka_version() + "\n", "utf-8")
            self.folder.fenced.unlink(missing_ok=True)
            self.launch()
            self._await_ready(port, cluster_id)
        except BaseException:
            self.kill()
            raise

    def _await_ready(self, port: int, cluster_id: str) -> None:
        deadline = time.monotonic() + self._start_timeout_s
        while time.monotonic() < deadline:
            if not self.is_running:
                raise self._failure("The embedded broker ended while starting", port)
            if answers(self.host, port) and _leads_all(f"{self.host}:{port}", cluster_id):
                return
            time.sleep(LOOK_EVERY_S)
        took = f"The embedded broker was not ready after {self._start_timeout_s:.0f} s"
        raise self._failure(took, port)

    def _fence_predecessor(self, properties: Mapping[str, str]) -> None:
        """Run the node as a controller only, until the controller has fenced the previous broker,
        but at most for FENCED_WITHIN_S.

        Otherwise the new broker loses its partitions when the old broker's session expires.
        Transactions that complete at that moment get no end marker, and stay open for ever
        (KAFKA-20734).
        """
        self.configure(alone_as_controller(properties))
        self.launch(QUICK_JVM)
        deadline = time.monotonic() + FENCED_WITHIN_S
        while self.is_running and time.monotonic() < deadline:
            log = "\n".join(self.folder.log_tail(TAIL_LINES))
            if FENCED in log.partition(GIVEN_UP)[2]:
                self.folder.fenced.touch()
                break
            time.sleep(LOOK_EVERY_S)
        self.end_process()

    def _failure(self, what: str, port: int) -> Exception:
        tail = self.folder.log_tail(TAIL_LINES)
        return explain(what, tail, self.folder.root, self.host, port)


def _leads_all(bootstrap: str, cluster_id: str) -> bool:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    try:
        seen = admin.list_topics(timeout=2)
    except KafkaException:
        return False
    partitions = [part for topic in seen.topics.values() for part in topic.partitions.values()]
    is_ours = str(seen.cluster_id) == cluster_id
    return is_ours and bool(seen.brokers) and all(part.leader >= 0 for part in partitions)
