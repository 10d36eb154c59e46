"""What the broker answers when it is asked about topics: a description, or why there is none."""

from collections.abc import Sequence
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, TopicDescription  # type: ignore[attr-defined]

from proxy.cli.ingress.connection import Connection


@dataclass(frozen=True, slots=True)
class Refused:
    """No description, and the broker's reason."""

    error: KafkaError


Answer = TopicDescription | Refused


def describe(admin: AdminClient, names: Sequence[str]) -> dict[str, Answer]:
    """By name, with what the asking user may do; asking creates none."""
    answers = admin.describe_topics(
        TopicCollection(list(names)),
        include_authorized_operations=True,
        request_timeout=Connection.limit_s,
    )
    described: dict[str, Answer] = {}
    for name, answer in answers.items():
        try:
            described[name] = answer.result()
        except KafkaException as error:
            described[name] = Refused(error.args[0])
    return described
