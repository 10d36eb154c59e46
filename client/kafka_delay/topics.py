"""Topics of a consumer: their creation and their ids."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, TypeAlias

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kafka_delay.errors import TopicsMissing
from kafka_delay.kafka import REACH, Settings, connection_settings, grant

ASK_WITHIN_S: Final = 30.0
SEEN_WITHIN_S: Final = 10.0
LOOK_EVERY_S: Final = 0.05
IDS_WITHIN_S: Final = 3.0
BROKERS_DEFAULT: Final = -1
NO_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"
"""The topic id that brokers without topic ids answer (before Kafka 2.8)."""
REFUSED: Final = frozenset(
    {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}
)

IdsOf: TypeAlias = Callable[[Collection[str]], Mapping[str, str | None]]
"""Returns the ids of topics, None for a missing topic. Raises KafkaException."""


def ids_from(settings: Settings) -> IdsOf:
    """Return a function that asks these brokers for topic ids."""
    admin = AdminClient(connection_settings(settings))

    def ids_of(topics: Collection[str]) -> dict[str, str | None]:
        asked = admin.describe_topics(TopicCollection(list(topics)), request_timeout=IDS_WITHIN_S)
        found: dict[str, str | None] = {}
        for topic, answer in asked.items():
            try:
                ident = str(answer.result().topic_id)
            except KafkaException as error:
                if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    found[topic] = None
                elif error.args[0].code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    raise
            else:
                if ident != NO_ID:
                    found[topic] = ident
        return found

    return ids_of


def ensure_topics(consumer: Consumer, settings: Settings, topics: Sequence[str]) -> None:
    """Create missing topics, and wait until the consumer sees them.

    Raises TopicsMissing or KafkaException.
    """
    missing = [topic for topic in topics if not _exists(consumer, topic)]
    if not missing:
        return
    _create(missing, settings)
    deadline_s = time.monotonic() + SEEN_WITHIN_S
    while not all(_exists(consumer, topic) for topic in missing) and time.monotonic() < deadline_s:
        time.sleep(LOOK_EVERY_S)


def _create(missing: Sequence[str], settings: Settings) -> None:
    admin = AdminClient(connection_settings(settings))
    wanted = [NewTopic(topic, BROKERS_DEFAULT, BROKERS_DEFAULT) for topic in missing]
    for topic, created in admin.create_topics(wanted, request_timeout=ASK_WITHIN_S).items():
        try:
            created.result()
        except KafkaException as error:
            code = error.args[0].code()
            if code != KafkaError.TOPIC_ALREADY_EXISTS:
                remedy = grant(settings, ["Create"], "topic", topic) if code in REFUSED else REACH
                raise TopicsMissing(
                    f"the topic {topic} does not exist and could not be created "
                    f"({error.args[0].str()}). Create it, or remove the cause. {remedy}"
                ) from error


def _exists(consumer: Consumer, topic: str) -> bool:
    found = consumer.list_topics(topic, ASK_WITHIN_S).topics[topic]
    unknown = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC}
    return found.error is None or found.error.code() not in unknown
