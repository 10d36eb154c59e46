"""Local Kafka cluster whose nodes can be killed, frozen and restarted."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import ClusterMetadata  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from proxy.embedded.jars import kafka_version
from proxy.embedded.server import (
    COORDINATOR_PARTITIONS,
    QUICK_JVM,
    DataFolder,
    KafkaServer,
    new_cluster_id,
    pick_free,
    server_properties,
)
from tests.support.quiet_clients import admin_client
from tests.support.waiting import wait_for

HOST: Final = "127.0.0.1"
STARTED_WITHIN_S: Final = 180
ANSWER_WITHIN_S: Final = 5
REPLICATED: Final = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
}
QUICK_TO_NOTICE: Final = {
    "controlled.shutdown.enable": "true",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.election.backoff.max.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1500",
    "replica.lag.time.max.ms": "3000",
    "replica.socket.timeout.ms": "3000",
}
"""Timeouts that remove a silent node from the quorum and every ISR within seconds. A stop hands
leaderships over, which a single broker cannot."""


class Node:
    """Broker and controller in one node, with listeners for clients, brokers and quorum."""

    def __init__(self, number: int, folder: Path, heap_mb: int) -> None:
        self.number = number
        self.port, self.internal_port, self.controller_port = _free_ports(3)
        self.advertised = f"{HOST}:{self.port}"
        self.server = KafkaServer(DataFolder(folder), heap_mb)

    def properties(self, nodes: list[Node], overrides: Mapping[str, str]) -> dict[str, str]:
        quorum = ",".join(f"{n.number}@{HOST}:{n.controller_port}" for n in nodes)
        internal = f"INTERNAL://{HOST}:{self.internal_port}"
        listening = f"PLAINTEXT://{HOST}:{self.port},{internal}"
        own = {
            "node.id": str(self.number),
            "controller.quorum.voters": quorum,
            "inter.broker.listener.name": "INTERNAL",
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT"
            ),
            "listeners": f"{listening},CONTROLLER://{HOST}:{self.controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.advertised},{internal}",
        }
        kafka_dir = self.server.folder.kafka
        every = {**REPLICATED, **QUICK_TO_NOTICE, **own, **overrides}
        return server_properties(HOST, self.port, self.controller_port, kafka_dir, every)


class Cluster:
    """Cluster of `nodes` numbered from 1. One node may fail, because everything has three replicas.
    `overrides` are server properties of all nodes. Queries use the brokers' own listener, which
    bypasses relays."""

    def __init__(
        self,
        folder: Path,
        nodes: int = 3,
        *,
        overrides: Mapping[str, str] | None = None,
        heap_mb: int = 512,
    ) -> None:
        self._overrides = dict(overrides or {})
        self._nodes = [Node(n, folder / f"node-{n}", heap_mb) for n in range(1, nodes + 1)]
        self._cluster_id = new_cluster_id()

    @property
    def numbers(self) -> list[int]:
        return [node.number for node in self._nodes]

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.advertised for node in self._nodes)

    @property
    def direct_servers(self) -> str:
        """Return all nodes with their internal addresses, which bypass `advertise`."""
        return ",".join(f"{HOST}:{node.internal_port}" for node in self._nodes)

    def port(self, number: int) -> int:
        return self._node(number).port

    def advertise(self, number: int, address: str) -> None:
        """Advertise this `host:port` from the next start, for example a relay's."""
        self._node(number).advertised = address

    def start_all(self) -> None:
        """Start all stopped nodes, and wait until every partition is led and in sync."""
        with ThreadPoolExecutor(len(self._nodes)) as at_once:
            list(at_once.map(self._launch, self._nodes))
        self.await_whole()

    def start(self, number: int) -> None:
        """Start a node, and wait until it is reachable and in sync. The other nodes must have given
        it up first. Otherwise it returns as leader, loses leadership and leaves transactions open
        (KAFKA-20734)."""
        wait_for(lambda: not self._is_known(number), STARTED_WITHIN_S, f"node {number} given up")
        self._launch(self._node(number))
        wait_for(lambda: self._is_in_sync(number), STARTED_WITHIN_S, f"node {number} in sync")

    def stop(self, number: int) -> None:
        self._node(number).server.stop()

    def kill(self, number: int) -> None:
        self._node(number).server.kill()

    def freeze(self, number: int) -> None:
        """Send SIGSTOP. The node's connections stay open, and it leads partitions until the
        controller gives it up."""
        self._node(number).server.signal(signal.SIGSTOP)

    def thaw(self, number: int) -> None:
        self._node(number).server.signal(signal.SIGCONT)

    def kill_all(self) -> None:
        for node in self._nodes:
            node.server.kill()

    def is_running(self, number: int) -> bool:
        """Return whether the node's process exists. A frozen process exists."""
        return self._node(number).server.is_running

    def log(self, number: int) -> str:
        return self._node(number).server.folder.log.read_text("utf-8", "replace")

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replicas: int = 3,
        config: Mapping[str, str] | None = None,
    ) -> None:
        self._create(NewTopic(name, partitions, replicas, config=dict(config or {})))

    def create_topic_on(
        self, name: str, assignment: list[list[int]], config: Mapping[str, str] | None = None
    ) -> None:
        placed = NewTopic(
            name, len(assignment), replica_assignment=assignment, config=dict(config or {})
        )
        self._create(placed)

    def leader(self, topic: str, partition: int = 0) -> int:
        """Return the leader of a partition, -1 if there is none or no node answers."""
        found = self._metadata(topic)
        partitions = found.topics[topic].partitions if found else {}
        return int(partitions[partition].leader) if partition in partitions else -1

    def group_coordinator(self, group: str) -> int:
        return self.await_leader("__consumer_offsets", coordinator_partition(group))

    def transaction_coordinator(self, transactional_id: str) -> int:
        return self.await_leader("__transaction_state", coordinator_partition(transactional_id))

    def await_whole(self) -> None:
        wait_for(self._is_whole, STARTED_WITHIN_S, f"all of {self.numbers} to lead and follow")

    def await_leader(self, topic: str, partition: int = 0, *, but: int = -1) -> int:
        leader = -1

        def is_led() -> bool:
            nonlocal leader
            leader = self.leader(topic, partition)
            return leader not in (-1, but)

        wait_for(is_led, STARTED_WITHIN_S, f"{topic}/{partition} to be led")
        return leader

    def _node(self, number: int) -> Node:
        return self._nodes[number - 1]

    def _launch(self, node: Node) -> None:
        server = node.server
        if server.is_running:
            return
        server.claim()
        try:
            server.configure(node.properties(self._nodes, self._overrides))
            if server.folder.cluster_id() is None:
                server.format(self._cluster_id)
            server.folder.version.write_text(kafka_version())
            server.launch(QUICK_JVM)
        except BaseException:
            server.kill()
            raise

    def _create(self, topic: NewTopic) -> None:
        admin = admin_client(self.direct_servers)
        admin.create_topics([topic])[topic.topic].result(STARTED_WITHIN_S)

        def is_led() -> bool:
            found = self._metadata(topic.topic)
            partitions = found.topics[topic.topic].partitions.values() if found else []
            return bool(partitions) and all(one.leader >= 0 for one in partitions)

        wait_for(is_led, STARTED_WITHIN_S, f"{topic.topic} to be led")

    def _metadata(self, topic: str | None = None) -> ClusterMetadata | None:
        """Return the metadata of all topics or of one, None without an answer."""
        admin = admin_client(self.direct_servers)
        try:
            if topic is None:
                return admin.list_topics(timeout=ANSWER_WITHIN_S)
            return admin.list_topics(topic, timeout=ANSWER_WITHIN_S)
        except KafkaException:
            return None

    def _is_known(self, number: int) -> bool:
        """Return whether the other nodes still list this node. Return False without other
        nodes."""
        if not any(node.server.is_running for node in self._nodes if node.number != number):
            return False
        found = self._metadata()
        return found is None or number in found.brokers

    def _is_in_sync(self, number: int) -> bool:
        found = self._metadata()
        return (
            found is not None
            and number in found.brokers
            and all(
                number in part.isrs
                for topic in found.topics.values()
                for part in topic.partitions.values()
                if number in part.replicas
            )
        )

    def _is_whole(self) -> bool:
        found = self._metadata()
        return (
            found is not None
            and sorted(found.brokers) == self.numbers
            and all(
                part.leader >= 0 and len(part.isrs) == len(part.replicas)
                for topic in found.topics.values()
                for part in topic.partitions.values()
            )
        )


@contextmanager
def running_cluster(folder: Path, nodes: int = 3, **overrides: str) -> Iterator[Cluster]:
    named = {name.replace("_", "."): value for name, value in overrides.items()}
    cluster = Cluster(folder, nodes, overrides=named)
    try:
        cluster.start_all()
        yield cluster
    finally:
        cluster.kill_all()


def coordinator_partition(name: str) -> int:
    """Return the partition of Kafka's own topic for a group or transactional id. It follows Java's
    `String.hashCode` and `Utils.abs(id.hashCode()) % partitions`."""
    units = name.encode("utf-16-be")
    code = 0
    for start in range(0, len(units), 2):
        code = (31 * code + int.from_bytes(units[start : start + 2])) & 0xFFFFFFFF
    signed = code - (1 << 32) if code >= 1 << 31 else code
    return (0 if signed == -(1 << 31) else abs(signed)) % COORDINATOR_PARTITIONS


def _free_ports(count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        port = pick_free(HOST)
        if port not in found:
            found.append(port)
    return found
