"""Makes the topics that the proxy itself names: `retry.<group>` and `dlq.<group>`.

docs/guide.md#retries-of-consumers
"""

from __future__ import annotations

from typing import Final

import structlog
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from proxy.config.settings import TopicSettings

TIMEOUT_S: Final = 10.0

log = structlog.get_logger(__name__)


class DerivedTopics:
    """Creates a target that is missing, where the proxy made its name and may create topics."""

    def __init__(self, admin: AdminClient, topics: TopicSettings) -> None:
        self._admin, self._topics = admin, topics

    def create(self, topic: str) -> bool:
        """Whether the topic is there now."""
        prefixes = (self._topics.retry_prefix, self._topics.dlq_prefix)
        if not self._topics.create or not topic.startswith(prefixes):
            return False
        wanted = NewTopic(topic, num_partitions=self._topics.partitions)
        try:
            self._admin.create_topics(
                [wanted], operation_timeout=TIMEOUT_S, request_timeout=TIMEOUT_S
            )[topic].result()
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return True
            log.warning("topic not created", topic=topic, why=error.args[0].str())
            return False
        log.info("topic created", topic=topic)
        return True
