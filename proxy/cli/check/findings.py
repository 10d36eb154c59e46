"""What `check` finds, and what it knows of the broker."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType, TopicDescription  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from proxy.config.settings import Settings
from proxy.kafka.access import Connection, Right, grant, is_refusal

# One line of `check`.


class Severity(StrEnum):
    """How bad it is: STOP keeps the proxy from running, WARN may cost a record or much time."""

    OK = "ok"
    ADVICE = "advice"
    WARN = "warn"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at, what was found, and what to do (empty when all is well)."""

    severity: Severity
    subject: str
    found: str
    remedy: str = ""

    def as_row(self) -> tuple[str, str, str, str]:
        """For a table."""
        return (self.severity.value, self.subject, self.found, self.remedy)

    def as_json(self) -> dict[str, str]:
        """For a program."""
        return {
            "verdict": self.severity.value,
            "subject": self.subject,
            "found": self.found,
            "remedy": self.remedy,
        }


ok = partial(Finding, Severity.OK)
advice = partial(Finding, Severity.ADVICE)
warn = partial(Finding, Severity.WARN)
stop = partial(Finding, Severity.STOP)


def lacks(
    subject: str, missing: Sequence[Right], settings: Settings, severity: Severity = Severity.STOP
) -> Finding:
    """Rights on one resource that the broker does not grant."""
    operations = ", ".join(right.operation for right in missing)
    found = f"the proxy's user lacks {operations}"
    return Finding(severity, subject, found, grant(missing, settings))


# Asks the broker about topics: whether they exist, their configuration, the user's rights.


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
