"""Error sentences of a consumer that the broker refuses."""

from __future__ import annotations

import shlex
from unittest.mock import patch

import pytest
from confluent_kafka import KafkaError, KafkaException

from kafka_delay import (
    BrokerError,
    ClientError,
    RetryConsumer,
    TransactionalDelayProducer,
    half_messages,
    retry_consumer,
)
from kafka_delay.consumer_loop import ConsumerLoop
from kafka_delay.kafka import grant
from tests.unit.client.mock_kafka import MockKafka

TOPIC_REFUSED = KafkaError(
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    "Subscribed topic not available: orders: Broker: Topic authorization failed",
)
GROUP_REFUSED = KafkaError(
    KafkaError.GROUP_AUTHORIZATION_FAILED, "Broker: Group authorization failed"
)


def refused(mock_kafka: MockKafka, error: KafkaError) -> BrokerError:
    config = {"sasl.username": "billing-app", **mock_kafka.settings}
    consumer = RetryConsumer(config, "billing", ["orders", "refunds"], print)
    with (
        patch.object(retry_consumer, "ensure_topics"),
        patch.object(ConsumerLoop, "run", side_effect=KafkaException(error)),
        pytest.raises(BrokerError) as raised,
    ):
        consumer.run()
    assert raised.value.error is error
    return raised.value


def test_a_topic_without_the_right_is_named_with_the_line_that_grants_it(
    mock_kafka: MockKafka,
) -> None:
    said = str(refused(mock_kafka, TOPIC_REFUSED))
    assert said.count("Grant it:") == 1
    assert said.endswith(
        f"Grant it: kafka-acls.sh --bootstrap-server {mock_kafka.bootstrap} --command-config "
        "admin.properties --add --allow-principal User:billing-app --operation Read --operation "
        "Describe --topic orders"
    )


def test_so_is_the_group(mock_kafka: MockKafka) -> None:
    assert str(refused(mock_kafka, GROUP_REFUSED)).endswith("--operation Read --group billing")


def test_where_the_broker_names_no_topic_all_are_named(mock_kafka: MockKafka) -> None:
    said = str(refused(mock_kafka, KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "refused")))
    assert all(f"--topic {topic}" in said for topic in ("orders", "refunds", "retry.billing"))


def test_a_static_member_that_another_process_has_fenced_is_told_so(mock_kafka: MockKafka) -> None:
    error = KafkaError(KafkaError.FENCED_INSTANCE_ID, "fenced", True)
    assert "Another process has the same group.instance.id" in str(refused(mock_kafka, error))


def test_the_line_can_be_pasted_whatever_the_names_are() -> None:
    settings = {"bootstrap.servers": "SSL://h:1, b:2", "sasl.username": "a $(x)"}
    words = shlex.split(grant(settings, ["Read"], "group", "my group").removeprefix("Grant it: "))
    assert words[words.index("--bootstrap-server") + 1] == "h:1,b:2"
    assert words[words.index("--allow-principal") + 1] == "User:a $(x)"
    assert words[words.index("--group") + 1] == "my group"
    assert "--command-config" in words
    assert "--command-config" not in grant({"bootstrap.servers": "h:1"}, ["Read"], "topic", "t")


class Listener:
    """Listener that is never asked."""

    def check(self, _half: object) -> None:
        """Return nothing."""


def test_a_producer_of_half_messages_is_told_alike(mock_kafka: MockKafka) -> None:
    with (
        patch.object(half_messages, "ensure_topics", side_effect=KafkaException(GROUP_REFUSED)),
        pytest.raises(ClientError, match="Grant it: .* --operation Read --group checks.listeners"),
    ):
        TransactionalDelayProducer(mock_kafka.settings, Listener(), "checks")  # type: ignore[arg-type]


def test_a_fatal_error_ends_the_answers_to_check_backs_and_the_next_send_says_so(
    mock_kafka: MockKafka,
) -> None:
    fenced = BrokerError(KafkaError(KafkaError.FENCED_INSTANCE_ID, "fenced", True), "refused")
    with (
        patch.object(half_messages, "ensure_topics"),
        patch.object(half_messages.CheckBacks, "serve", side_effect=fenced),
        TransactionalDelayProducer(mock_kafka.settings, Listener(), "checks") as producer,  # type: ignore[arg-type]
    ):
        producer._check_backs.stop()
        with pytest.raises(ClientError, match="check-backs are no longer answered .refused"):
            producer.send_in_transaction("orders", local_transaction=lambda _: None)
