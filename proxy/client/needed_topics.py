"""Topics that a consumer of this package needs: looked for, and made where they are missing."""

import time
from collections.abc import Sequence
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from proxy.client.errors import TopicsMissing
from proxy.client.kafka_settings import Settings, connection_settings

ASK_WITHIN_S: Final = 30.0
SEEN_WITHIN_S: Final = 10.0
LOOK_EVERY_S: Final = 0.05
BROKERS_DEFAULT: Final = -1


def ensure_topics(consumer: Consumer, settings: Settings, topics: Sequence[str]) -> None:
    """Make those of the topics that do not exist, as the broker's defaults say, and wait for them.

    A consumer that subscribes to a topic before it exists would notice it minutes later only.
    Raises TopicsMissing, KafkaException.
    """
    missing = [topic for topic in topics if not _exists(consumer, topic)]
    if not missing:
        return
    _make(missing, settings)
    deadline_s = time.monotonic() + SEEN_WITHIN_S
    while not all(_exists(consumer, topic) for topic in missing) and time.monotonic() < deadline_s:
        time.sleep(LOOK_EVERY_S)


def _make(missing: Sequence[str], settings: Settings) -> None:
    admin = AdminClient(connection_settings(settings))
    wanted = [NewTopic(topic, BROKERS_DEFAULT, BROKERS_DEFAULT) for topic in missing]
    for topic, made in admin.create_topics(wanted, request_timeout=ASK_WITHIN_S).items():
        try:
            made.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise TopicsMissing(
                    f"the topic {topic} does not exist and could not be made "
                    f"({error.args[0].str()}): create it, or grant this user Create on it"
                ) from error


def _exists(consumer: Consumer, topic: str) -> bool:
    found = consumer.list_topics(topic, ASK_WITHIN_S).topics[topic]
    unknown = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC}
    return found.error is None or found.error.code() not in unknown
