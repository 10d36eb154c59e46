"""What is said when the broker refuses a right: which one, and the line that grants it."""

import shlex
from collections.abc import Sequence
from typing import Final

from confluent_kafka import KafkaError

from proxy.client.errors import BrokerError
from proxy.client.kafka_settings import Settings

READ_TOPIC: Final = ("Read", "Describe")


def grant(settings: Settings, operations: Sequence[str], kind: str, name: str) -> str:
    """Return what to do: the line that grants these operations."""
    given = settings.get("bootstrap.servers", settings.get("metadata.broker.list", "HOST:PORT"))
    brokers = shlex.quote(",".join(_address(one) for one in str(given).split(",")))
    user = settings.get("sasl.username", settings.get("sasl.user"))
    protocol = str(settings.get("security.protocol", "plaintext")).lower()
    login = "" if user is None and protocol == "plaintext" else " --command-config admin.properties"
    principal = f"User:{user or 'NAME'}"
    asked = " ".join(f"--operation {operation}" for operation in operations)
    return (
        f"Grant it: kafka-acls.sh --bootstrap-server {brokers}{login} --add --allow-principal "
        f"{shlex.quote(principal)} {asked} --{kind} {shlex.quote(name)}"
    )


def _address(server: str) -> str:
    """Return an address without librdkafka's scheme."""
    return server.strip().rpartition("://")[2]


def broker_error(
    error: KafkaError, settings: Settings, group: str, topics: Sequence[str]
) -> BrokerError:
    """Return what a consumer of these topics tells of the broker's refusal, or of its silence."""
    if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
        remedy = grant(settings, ["Read"], "group", group)
    elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        named = [topic for topic in topics if topic in error.str()]
        remedy = ". ".join(grant(settings, READ_TOPIC, "topic", one) for one in named or topics)
    elif error.code() == KafkaError.FENCED_INSTANCE_ID:
        remedy = "Another process has the same group.instance.id: give each one its own"
    else:
        remedy = "See whether the brokers in bootstrap.servers can be reached"
    return BrokerError(error, f"group {group}: {error.str()}. {remedy}")
