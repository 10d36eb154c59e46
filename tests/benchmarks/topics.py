"""Fresh topics for each measurement, and their removal, so that no log grows into the next."""

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.benchmarks.clients import ERRORS_ONLY

PARTITIONS = 4


def create(bootstrap_servers: str, *names: str, stamped_by: str = "LogAppendTime") -> None:
    """Creates topics whose records no retention takes away; the broker stamps them by default."""
    settings = {"retention.ms": "-1", "message.timestamp.type": stamped_by}
    topics = [NewTopic(name, PARTITIONS, 1, config=settings) for name in names]
    admin = _admin(bootstrap_servers)
    for created in admin.create_topics(topics).values():
        created.result(30)


def delete_starting_with(bootstrap_servers: str, prefix: str) -> None:
    """Deletes every topic of one measurement."""
    admin = _admin(bootstrap_servers)
    names = [name for name in admin.list_topics(timeout=10).topics if name.startswith(prefix)]
    if names:
        for deleted in admin.delete_topics(names).values():
            deleted.result(30)


def _admin(bootstrap_servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": ERRORS_ONLY})
