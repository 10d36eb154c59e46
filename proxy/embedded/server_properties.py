"""The settings of a broker that is alone: one node, both roles, quick to start."""

from collections.abc import Mapping
from pathlib import Path

NODE_ID = 1
COORDINATOR_PARTITIONS = 4
ALONE = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": str(COORDINATOR_PARTITIONS),
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": str(COORDINATOR_PARTITIONS),
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": str(COORDINATOR_PARTITIONS),
}
"""Kafka's own topics with one replica, and so few partitions that they open at once."""
PROMPT = {
    # How long a restarted broker waits for the session of the one that was killed.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    # A controlled stop leaves partitions without a leader while transactions still end, and
    # those then never get their end marker (KAFKA-20734).
    "controlled.shutdown.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "log.cleaner.backoff.ms": "1000",
    "log.cleaner.dedupe.buffer.size": str(16 << 20),
}
"""No waiting for other members, for dead transactions, or for compaction; a small cleaner."""


def server_properties(
    host: str, port: int, controller_port: int, log_dir: Path, overrides: Mapping[str, str]
) -> dict[str, str]:
    """Kafka's `server.properties` as a mapping; `overrides` win.

    What is not named here stays at Kafka's default, topic creation on first use included.
    """
    identity = _identity(host, port, controller_port, log_dir)
    return {**identity, **ALONE, **PROMPT, **overrides}


def alone_as_controller(properties: Mapping[str, str]) -> dict[str, str]:
    """The same node as a controller only, which soon gives up on brokers it does not hear from."""
    brokers = ("advertised.listeners", "inter.broker.listener.name")
    kept = {name: value for name, value in properties.items() if name not in brokers}
    listeners = properties["listeners"].split(",")
    return {
        **kept,
        "process.roles": "controller",
        "listeners": next(one for one in listeners if one.startswith("CONTROLLER:")),
        "broker.heartbeat.interval.ms": "100",
        "broker.session.timeout.ms": "200",
    }


def as_text(properties: Mapping[str, str]) -> str:
    """The lines of a Java properties file."""
    return "".join(f"{name}={_escaped(value)}\n" for name, value in properties.items())


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n")


def _identity(host: str, port: int, controller_port: int, log_dir: Path) -> dict[str, str]:
    return {
        "process.roles": "broker,controller",
        "node.id": str(NODE_ID),
        "controller.quorum.voters": f"{NODE_ID}@{host}:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "listeners": f"PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{host}:{port}",
        "log.dirs": str(log_dir),
    }
