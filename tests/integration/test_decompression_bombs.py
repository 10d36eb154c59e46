"""Batches that grow when they are unpacked, on a real broker: the proxy's topics refuse them."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, Message, Producer

from proxy.config.settings import Settings
from proxy.kafka.topics import own_topics
from tests.support.records import new_topic

pytestmark = pytest.mark.integration

CODECS = ["zstd", "gzip", "lz4", "snappy"]


def _written(kafka: str, codec: str, size_bytes: int, config: dict[str, str]) -> int:
    """The error code with which the broker answers a record of so many zeros; 0 where it takes
    it."""
    topic, codes = new_topic(kafka, "bombs", config=config), list[int]()
    client = {"compression.type": codec, "message.max.bytes": 1_000_000_000, "linger.ms": 0}
    producer = Producer({"bootstrap.servers": kafka, **client})

    def note(error: KafkaError | None, _: Message) -> None:
        codes.append(0 if error is None else error.code())

    producer.produce(topic, bytes(size_bytes), b"k", on_delivery=note)
    assert producer.flush(120) == 0
    return codes[0]


@pytest.mark.parametrize("role", ["ingress", "dead_letters"])
@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_is_refused_and_a_small_compressed_batch_is_taken(
    kafka: str, codec: str, role: str
) -> None:
    settings = Settings()
    config = own_topics(settings)[getattr(settings.topics, role)]
    assert _written(kafka, codec, 20_000_000, config) == KafkaError.MSG_SIZE_TOO_LARGE
    assert _written(kafka, codec, 100_000, config) == 0


def test_without_it_the_broker_takes_the_bomb(kafka: str) -> None:
    assert _written(kafka, "zstd", 20_000_000, {}) == 0
