"""Fetches partitions again that were paused."""

from collections.abc import Sequence
from contextlib import suppress

from confluent_kafka import Consumer, KafkaException, TopicPartition


def resume_at(consumer: Consumer, places: Sequence[TopicPartition]) -> None:
    """Go on at these offsets, where each of them is read on anyway.

    Where all partitions of a broker were paused, librdkafka's thread for it sleeps for up to a
    second before it looks at them again (seen with 2.16.0). To seek wakes it. One that cannot be
    sought, since it is not owned any more or has no leader, is resumed all the same.
    """
    consumer.resume(list(places))
    for place in places:
        if place.offset >= 0:
            with suppress(KafkaException):
                consumer.seek(place)
