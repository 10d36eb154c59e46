"""Kafka clients of the tests. They stay quiet when brokers come and go."""

from typing import Final

from confluent_kafka.admin import AdminClient

QUIET: Final = {"log_level": 0}
"""Setting that keeps a client from writing to stderr. Errors are still raised."""


def admin_client(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, **QUIET})
