"""Publishes what a continuous audit has found: a compacted topic with the latest figures.

Each message holds what has been counted up to now, so that one written twice does no harm.
"""

import json
from dataclasses import asdict
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import DataFrame

from spark_jobs.continuous.totals import Totals
from spark_jobs.continuous.windows import as_messages
from spark_jobs.kafka.kafka_settings import KafkaSettings
from spark_jobs.runtime.errors import TopicMissing
from spark_jobs.runtime.frames import local_rows

TOTALS: Final = "totals"
"""The key of the message with the totals; all others are of windows."""
TIMEOUT_S: Final = 15.0
KEPT_MS: Final = 30 * 86_400_000
CONFIG: Final = {"cleanup.policy": "compact,delete", "retention.ms": str(KEPT_MS)}


def publish(windows: DataFrame, totals: Totals, settings: KafkaSettings, topic: str) -> None:
    """Write WINDOWS and the totals to the topic, in JSON by key."""
    message = {"key": TOTALS, "value": json.dumps(asdict(totals))}
    row = local_rows(windows.sparkSession, [message], {"key": "string", "value": "string"})
    writer = as_messages(windows).unionByName(row).write.format("kafka").mode("append")
    for name, value in settings.java.items():
        writer = writer.option(f"kafka.{name}", value)
    writer.option("topic", topic).save()


def create_topic(settings: KafkaSettings, topic: str) -> None:
    """Create the topic unless it is there. Raises `TopicMissing` where that is refused."""
    admin = AdminClient(dict(settings.librdkafka))
    wanted = NewTopic(topic, num_partitions=1, config=CONFIG)
    try:
        admin.create_topics([wanted], request_timeout=TIMEOUT_S)[topic].result(TIMEOUT_S)
    except KafkaException as failed:
        error = failed.args[0]
        if error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise TopicMissing(
                f"The topic {topic} cannot be created: {error.str()}.",
                "Create it (cleanup.policy=compact), or name another --audit-topic, or none: ''.",
            ) from None
