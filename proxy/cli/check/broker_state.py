"""Asks the broker about topics: whether they exist, their configuration, the user's rights."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    ResourceType,
    TopicDescription,
)
from confluent_kafka.cimpl import NewTopic

from proxy.kafka.access.connection import Connection
from proxy.kafka.access.rights import is_refusal


@dataclass(frozen=True, slots=True)
class Refused:
    """No description, and the broker's reason."""

    error: KafkaError


Described = TopicDescription | Refused


def describe_topics(admin: AdminClient, names: Sequence[str]) -> dict[str, Described]:
    """By name, with what the asking user may do; asking creates none."""
    answers = admin.describe_topics(
        TopicCollection(list(names)),
        include_authorized_operations=True,
        request_timeout=Connection.limit_s,
    )
    described: dict[str, Described] = {}
    for name, answer in answers.items():
        try:
            described[name] = answer.result()
        except KafkaException as error:
            described[name] = Refused(error.args[0])
    return described


def read_configs(
    admin: AdminClient, topics: list[str], broker_id: str
) -> dict[str, dict[str, str]]:
    """Configuration by topic, and of one broker under the empty name; less what is not shown."""
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
    resources.append(ConfigResource(ResourceType.BROKER, broker_id))
    configs: dict[str, dict[str, str]] = {}
    answers = admin.describe_configs(resources, request_timeout=Connection.limit_s)
    for resource, answer in answers.items():
        name = resource.name if resource.restype == ResourceType.TOPIC else ""
        try:
            entries = answer.result()
        except KafkaException:
            continue
        configs[name] = {key: entry.value for key, entry in entries.items() if entry.value}
    return configs


def may_create(admin: AdminClient, topic: str) -> bool:
    """Whether the broker would let the asking user create it; it is not created."""
    wanted = NewTopic(topic, num_partitions=1)
    answers = admin.create_topics([wanted], validate_only=True, request_timeout=Connection.limit_s)
    try:
        answers[topic].result()
    except KafkaException as error:
        return not is_refusal(error.args[0])
    return True


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One topic: name, partitions, configuration as the broker words it (empty: not readable), and
    the fewest replicas that a partition has (None: not known)."""

    name: str
    partitions: int
    config: Mapping[str, str]
    replicas: int | None = None


def number_in(config: Mapping[str, str], key: str) -> int | None:
    """The value of a key as a number; None where it is not known."""
    text = config.get(key, "")
    return int(text) if text.lstrip("-").isdigit() else None
