"""The rights that the proxy's user needs, and which of them the broker does not grant.

Source: docs/operations/topics.md#rights-of-the-proxys-user.
"""

import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import structlog
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    TopicDescription,
)

from proxy.config.settings import Settings
from proxy.errors import BrokerRefused
from proxy.kafka.client_settings import common_config

ASK_TIMEOUT_S: Final = 10.0
MAY_BE_A_RIGHT: Final = ("authorization failed", "a transaction failed", "abort failed", "may not")
"""What librdkafka's words for each of the broker's refusals have in common; a transaction that was
aborted again and again, or could not even be, of which librdkafka's last word may be another; and
the proxy's own words."""
NEEDED: Final = {
    "ingress": ("Read", "Write", "Describe"),
    "settings": ("Read", "Write", "Describe"),
    "dead_letters": ("Write", "Describe"),
    "outcomes": ("Write", "Describe"),
}
"""On each of the proxy's own topics."""
REFUSALS: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)

log = structlog.get_logger(__name__)


class Right(NamedTuple):
    """An operation on a resource, in the words of Kafka's own tool."""

    operation: str
    kind: str
    name: str
    is_prefix: bool = False

    def __str__(self) -> str:
        return f"{self.operation} on the {self.kind.replace('-', ' ')} {self.name}"


def grant(rights: Sequence[Right], settings: Settings) -> str:
    """Return the command that grants these rights, all on one resource.

    On a broker that asks for a login it names admin.properties, the administrator's own.
    """
    one = rights[0]
    operations = " ".join(f"--operation {right.operation}" for right in rights)
    prefixed = " --resource-pattern-type prefixed" if one.is_prefix else ""
    is_open = settings.kafka.get("security.protocol", "plaintext").lower() == "plaintext"
    login = "" if is_open else " --command-config admin.properties"
    servers = (one.strip().rpartition("://")[2] for one in settings.bootstrap_servers.split(","))
    principal = shlex.quote(f"User:{settings.kafka.get('sasl.username', 'NAME')}")
    return (
        f"Grant it: kafka-acls.sh --bootstrap-server {shlex.quote(','.join(servers))}{login} --add "
        f"--allow-principal {principal} {operations} --{one.kind} {shlex.quote(one.name)}{prefixed}"
    )


def remedy(
    error: KafkaError, settings: Settings, topic: str | None = None, operation: str = "Describe"
) -> str | None:
    """Return the command that grants what the broker refuses, where it is known.

    `operation` is what was tried on `topic`.
    """
    needed = {
        KafkaError.TOPIC_AUTHORIZATION_FAILED: topic and Right(operation, "topic", topic),
        KafkaError.GROUP_AUTHORIZATION_FAILED: group_right(settings),
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: transactional_right(settings),
    }.get(error.code())
    return grant([needed], settings) if needed else None


def rights_on(topic: str, settings: Settings) -> list[Right]:
    """What is needed on one of the proxy's own topics."""
    role = next(role for role in NEEDED if getattr(settings.topics, role) == topic)
    return [Right(operation, "topic", topic) for operation in NEEDED[role]]


def target_rights(topic: str) -> list[Right]:
    """What is needed on a topic that records are delivered to."""
    return [Right(operation, "topic", topic) for operation in ("Write", "Describe")]


def group_right(settings: Settings) -> Right:
    """On the consumer group."""
    return Right("Read", "group", settings.group_id)


def transactional_right(settings: Settings) -> Right:
    """On the transactional ids of all instances and workers."""
    return Right("Write", "transactional-id", f"{settings.group_id}-", is_prefix=True)


def create_right(topic: str) -> Right:
    """To create a topic."""
    return Right("Create", "topic", topic)


NAMED_BY: Final = (
    ("Group authorization failed", group_right),
    ("Transactional Id authorization failed", transactional_right),
)
"""The broker's words for what no question about a topic would show."""


def lacking(topic: TopicDescription, needed: Sequence[Right]) -> list[Right]:
    """Those that the asking user lacks on the topic; none where the broker does not tell."""
    granted = {operation.name.title() for operation in topic.authorized_operations or ()}
    return [right for right in needed if granted and right.operation not in granted]


def is_refusal(error: KafkaError) -> bool:
    """Whether the broker refuses it for want of a right."""
    return error.code() in REFUSALS


def refuse_missing_rights(settings: Settings, admin: AdminClient) -> None:
    """At the start: nothing works without the rights on the proxy's own topics.

    Raises BrokerRefused, or KafkaException where the broker does not answer.
    """
    missing = list(_missing_on_topics(settings, admin))
    if missing:
        names = ", ".join(map(str, missing))
        lines = (grant([right], settings) for right in missing)
        raise BrokerRefused(f"The proxy's user lacks {names}.", "\n".join(lines))


def log_missing_rights(settings: Settings, why: str) -> None:
    """After a session was lost for `why`: name each right that is missing, if that may be why.

    Asks the broker; where it does not answer nothing is said.
    """
    if not any(words in why for words in MAY_BE_A_RIGHT):
        return
    missing = [right(settings) for words, right in NAMED_BY if words in why]
    with suppress(KafkaException):
        missing = missing or list(
            _missing_on_topics(settings, AdminClient(common_config(settings)))
        )
    for right in missing:
        log.error("a right is missing", right=str(right), remedy=grant([right], settings))


def _missing_on_topics(settings: Settings, admin: AdminClient) -> Iterator[Right]:
    own = settings.topics.own
    answers = admin.describe_topics(
        TopicCollection(list(own)),
        include_authorized_operations=True,
        request_timeout=ASK_TIMEOUT_S,
    )
    for name in own:
        needed = rights_on(name, settings)
        try:
            yield from lacking(answers[name].result(), needed)
        except KafkaException as error:
            if is_refusal(error.args[0]):
                yield from needed
            elif error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
