"""The settings of a single broker, embedded or in a container."""

from pathlib import Path

from proxy.embedded.server import (
    alone_as_controller,
    as_text,
    server_properties,
)
from tests.support.installation.broker import container_settings


def _properties(**overrides: str) -> dict[str, str]:
    named = {name.replace("_", "."): value for name, value in overrides.items()}
    return server_properties("127.0.0.1", 9092, 9093, Path("/data"), named)


def test_override_beats_our_own_setting_and_others_stay() -> None:
    properties = _properties(offsets_topic_num_partitions="50")
    assert properties["offsets.topic.num.partitions"] == "50"
    assert properties["transaction.state.log.min.isr"] == "1"


def test_topics_are_still_created_on_first_use_as_kafka_does_by_default() -> None:
    assert "auto.create.topics.enable" not in _properties()


def test_backslashes_and_line_ends_survive_the_properties_file() -> None:
    assert as_text({"a": "x\\y\nz", "b": "1"}) == "a=x\\\\y\\nz\nb=1\n"


def test_container_listens_inside_and_is_reached_outside() -> None:
    settings = container_settings("docker-host", 23456)
    assert settings["KAFKA_ADVERTISED_LISTENERS"] == "PLAINTEXT://docker-host:23456"
    assert settings["KAFKA_LISTENERS"] == "PLAINTEXT://:9092,CONTROLLER://:9093"
    assert settings["KAFKA_CONTROLLER_QUORUM_VOTERS"] == "1@localhost:9093"
    assert settings["KAFKA_TRANSACTION_STATE_LOG_MIN_ISR"] == "1"


def test_controller_alone_has_the_broker_s_files_and_none_of_its_listeners() -> None:
    whole = server_properties("127.0.0.1", 9092, 9093, Path("/data/kafka"), {})
    alone = alone_as_controller(whole)
    assert alone["listeners"] == "CONTROLLER://127.0.0.1:9093"
    assert "advertised.listeners" not in alone
    assert alone["log.dirs"] == whole["log.dirs"]
