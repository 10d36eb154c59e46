"""New topics for each measurement. They are deleted afterwards, so that disk space is freed."""

from collections.abc import Mapping

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tools.benchmarks.clients import ERRORS_ONLY

PARTITIONS = 4
AT_ONCE = 250


def numbered(name: str, count: int) -> list[str]:
    return [name] if count == 1 else [f"{name}-{number}" for number in range(count)]


def create(
    bootstrap_servers: str,
    *names: str,
    stamped_by: str = "LogAppendTime",
    partitions: int = PARTITIONS,
    config: Mapping[str, str] | None = None,
) -> None:
    """Create topics without retention. The broker sets the timestamps by default."""
    settings = {"retention.ms": "-1", "message.timestamp.type": stamped_by, **(config or {})}
    topics = [NewTopic(name, partitions, 1, config=settings) for name in names]
    admin = _admin(bootstrap_servers)
    for first in range(0, len(topics), AT_ONCE):
        for created in admin.create_topics(topics[first : first + AT_ONCE]).values():
            created.result(60)


def delete_starting_with(bootstrap_servers: str, prefix: str) -> None:
    admin = _admin(bootstrap_servers)
    names = [name for name in admin.list_topics(timeout=10).topics if name.startswith(prefix)]
    if names:
        for deleted in admin.delete_topics(names).values():
            deleted.result(30)


def _admin(bootstrap_servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": ERRORS_ONLY})
