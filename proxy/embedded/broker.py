"""A whole Kafka broker as an object: start, stop, kill, start again with the same data."""

import time
from collections.abc import Mapping
from pathlib import Path
from signal import Signals
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
from proxy.errors import PortTaken
from proxy.extras import require

PORT_TRIES = 3
LOOK_EVERY_S = 0.05
GIVEN_UP, FENCED = "because its session has timed out", "fenced=1"
FENCED_WITHIN_S = 30


class EmbeddedBroker:
    """One Kafka node, broker and controller in one, listening on one address of this machine.

    `port` 0 picks a free one, kept for later starts of the same object. The same `data_dir` gives
    the same cluster with its topics. `overrides` are Kafka server properties. The JVM dies with
    this process, even when this process is killed.

        with EmbeddedBroker(folder) as broker:
            Producer({"bootstrap.servers": broker.bootstrap_servers})

    Starting raises `PortTaken`, `DataDirInUse`, `JarsUnavailable`, `CacheUnusable`,
    `JavaMissing`, `DataFromNewerKafka`, `ExtraMissing` or `BrokerFailed`.
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
        self.host = host
        self.port = port
        self._folder = DataFolder(Path(data_dir))
        self._overrides = dict(overrides or {})
        self._server = KafkaServer(self._folder, heap_mb)
        self._start_timeout_s = start_timeout_s

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` for clients; the port is known once the broker was started."""
        return f"{self.host}:{self.port}"

    @property
    def is_running(self) -> bool:
        """Whether the JVM is there (a frozen one is)."""
        return self._server.is_running

    @property
    def log_path(self) -> Path:
        """The file that holds what the broker says."""
        return self._folder.log

    def start(self) -> None:
        """Start, and return when clients can produce and consume; harmless when it runs."""
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

    def stop(self) -> None:
        """Stop cleanly (a second or so); harmless when it does not run."""
        self._server.stop()

    def kill(self) -> None:
        """SIGKILL, as a crash would; the data folder stays for the next start."""
        self._server.kill()

    def signal(self, number: Signals) -> None:
        """Send the JVM a signal: SIGSTOP freezes the broker, SIGCONT lets it go on."""
        self._server.signal(number)

    def wait(self) -> None:
        """Block while the broker runs; raises `BrokerFailed` when it ends by itself."""
        if self._server.wait():
            raise self._failure("The embedded broker ended by itself", self.port)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def _start_on(self, port: int) -> None:
        self._server.claim()
        try:
            if not is_free(self.host, port):
                raise PortTaken(self.host, port, CHOOSE_PORT)
            properties = self._properties(port)
            if self._folder.may_be_registered:
                self._fence_predecessor(properties)
            self._server.configure(properties)
            cluster_id = self._folder.cluster_id() or self._format()
            self._folder.mark_version(kafka_version())
            self._folder.mark_registered()
            self._server.launch()
            self._await_ready(port, cluster_id)
        except BaseException:
            self.kill()
            raise

    def _properties(self, port: int) -> dict[str, str]:
        controller_port = pick_free(self.host)
        return server_properties(
            self.host, port, controller_port, self._folder.kafka, self._overrides
        )

    def _format(self) -> str:
        cluster_id = new_cluster_id()
        self._server.format(cluster_id)
        return cluster_id

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
        """Let the controller, alone, take the partitions from the broker that is gone.

        Else the new broker comes back as the leader that the old one was, loses that when the old
        session runs out, and in between calls transactions complete without having written their
        end: Kafka takes a partition without a leader for a deleted one (KAFKA-20734). Their
        offsets and records then stay open for ever.
        """
        self._server.configure(alone_as_controller(properties))
        self._server.launch(QUICK_JVM)
        deadline = time.monotonic() + FENCED_WITHIN_S
        while self.is_running and time.monotonic() < deadline and not self._is_fenced():
            time.sleep(LOOK_EVERY_S)
        self._server.end_process()
        self._folder.mark_fenced()

    def _is_fenced(self) -> bool:
        log = "\n".join(self._folder.log_tail(TAIL_LINES))
        return FENCED in log.partition(GIVEN_UP)[2]

    def _failure(self, what: str, port: int) -> Exception:
        tail = self._folder.log_tail(TAIL_LINES)
        return explain(what, tail, self._folder.root, self.host, port)


def _leads_all(bootstrap: str, cluster_id: str) -> bool:
    """Whether this very cluster answers there, its broker let in and leading every partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    try:
        seen = admin.list_topics(timeout=2)
    except KafkaException:
        return False
    partitions = [part for topic in seen.topics.values() for part in topic.partitions.values()]
    is_ours = str(seen.cluster_id) == cluster_id
    return is_ours and bool(seen.brokers) and all(part.leader >= 0 for part in partitions)
