"""Kafka clients of the tests' own. Brokers come and go under them, which is no news."""

from typing import Final

from confluent_kafka.admin import AdminClient

QUIET: Final = {"log_level": 0}
"""What keeps a client from writing to stderr; its errors are raised all the same."""


def admin_client(bootstrap: str) -> AdminClient:
    """For the broker at this address."""
    return AdminClient({"bootstrap.servers": bootstrap, **QUIET})
