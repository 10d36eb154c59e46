"""Missing rights are named by a command to paste."""

import shlex

import pytest
from confluent_kafka import KafkaError

from proxy.config.settings import Settings
from proxy.kafka.access import Right, explain, grant

TLS = {"bootstrap.servers": "kafka:9093", "security.protocol": "SASL_SSL", "sasl.username": "a b"}


def granted(right: Right, **kafka: str) -> list[str]:
    settings = Settings.model_validate({"kafka": {"bootstrap.servers": "kafka:9092", **kafka}})
    return shlex.split(grant([right], settings).removeprefix("Grant it: "))


def test_the_command_logs_in_where_the_broker_asks_for_it() -> None:
    right = Right("Write", "topic", "orders")
    assert "--command-config" not in granted(right)
    words = granted(right, **TLS)
    assert words[words.index("--command-config") + 1] == "admin.properties"


def test_names_with_blanks_stay_one_word() -> None:
    words = granted(Right("Read", "group", "my group"), **TLS)
    assert words[words.index("--allow-principal") + 1] == "User:a b"
    assert words[words.index("--group") + 1] == "my group"


def test_addresses_are_as_kafka_s_tool_takes_them() -> None:
    right = Right("Write", "topic", "orders")
    words = granted(right, **{"bootstrap.servers": "PLAINTEXT://h:1, SSL://b:2"})
    assert words[words.index("--bootstrap-server") + 1] == "h:1,b:2"


@pytest.mark.parametrize(
    ("code", "resource"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "--operation Read --topic orders"),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, "--operation Read --group delay-proxy"),
        (
            KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "--operation Write --transactional-id delay-proxy",
        ),
    ],
)
def test_each_refusal_is_explained_with_the_command(code: int, resource: str) -> None:
    said = str(explain(KafkaError(code), Settings(), "orders", "Read"))
    assert "Grant it: kafka-acls.sh --bootstrap-server localhost:9092" in said
    assert resource in said
