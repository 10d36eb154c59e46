"""Settings: sound defaults, the caller's values win, and unsafe values are refused."""

from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from kafka_delay import HalfMessage, RetryConsumer, State, TransactionalDelayProducer
from kafka_delay.errors import ConfigRefused
from kafka_delay.kafka import connection_settings, consumer_settings, producer_settings

BROKER = {"bootstrap.servers": "localhost:9092"}


def test_defaults_are_durable_and_partition_as_java_does() -> None:
    assert producer_settings(BROKER) == {
        **BROKER,
        "acks": "all",
        "enable.idempotence": True,
        "partitioner": "murmur2_random",
    }


def test_the_caller_s_own_settings_win() -> None:
    settings = producer_settings({**BROKER, "enable.idempotence": False, "linger.ms": 50})
    assert settings["enable.idempotence"] is False
    assert settings["linger.ms"] == 50


@pytest.mark.parametrize(
    "given",
    [
        {"acks": 1},
        {"request.required.acks": 1},
        {"max.in.flight.requests.per.connection": 10},
        {"max.in.flight": "6"},
        {"retries": 0},
        {"message.send.max.retries": 0},
    ],
)
def test_settings_that_forbid_idempotence_are_followed_without_it(given: dict[str, Any]) -> None:
    settings = producer_settings({**BROKER, **given})
    assert "enable.idempotence" not in settings
    Producer({**settings, "log_level": 0})


@pytest.mark.parametrize("given", [{"acks": -1}, {"request.required.acks": "all"}, {"retries": 3}])
def test_settings_that_allow_idempotence_get_it(given: dict[str, Any]) -> None:
    settings = producer_settings({**BROKER, **given})
    assert settings["enable.idempotence"] is True
    Producer({**settings, "log_level": 0})


@pytest.mark.parametrize(
    "given",
    [
        {"partitioner": "consistent_random"},
        {"partitioner": "random"},
        {"partitioner_callback": print},
        {"default.topic.config": {"partitioner": "consistent"}},
    ],
)
def test_another_partitioner_is_refused_because_cancels_must_meet_their_records(
    given: dict[str, Any],
) -> None:
    with pytest.raises(ConfigRefused, match=r"a cancel meets its record only if .*leave .* out"):
        producer_settings({**BROKER, **given})


def test_java_s_hash_is_taken_by_either_name() -> None:
    assert producer_settings({**BROKER, "partitioner": "murmur2"})["partitioner"] == "murmur2"


@pytest.mark.parametrize("name", ["bootstrap.servers", "metadata.broker.list"])
def test_a_url_is_no_address(name: str) -> None:
    with pytest.raises(ConfigRefused, match=f"{name} names 'http://h:9092/': write host:port"):
        producer_settings({name: "a:9092, http://h:9092/"})
    assert producer_settings({name: "SSL://a:9092,b:9092"})[name] == "SSL://a:9092,b:9092"


def test_settings_without_a_broker_are_refused_with_an_example() -> None:
    with pytest.raises(ConfigRefused, match="add 'bootstrap.servers'"):
        producer_settings({})


@pytest.mark.parametrize("on", [True, "true", "True"])
def test_reports_of_errors_alone_are_refused_for_want_of_receipts(on: object) -> None:
    with pytest.raises(ConfigRefused, match="no receipts"):
        producer_settings({**BROKER, "delivery.report.only.error": on})


def test_a_consumer_commits_by_itself_and_begins_at_the_start() -> None:
    settings = consumer_settings({**BROKER, "session.timeout.ms": 6000}, "g")
    assert settings["enable.auto.commit"] is False
    assert settings["auto.offset.reset"] == "earliest"
    assert settings["session.timeout.ms"] == 6000
    assert settings["isolation.level"] == "read_committed"
    Consumer({**settings, "log_level": 0}).close()


@pytest.mark.parametrize(
    "given",
    [
        {"enable.auto.commit": True},
        {"auto.offset.reset": "latest"},
        {"group.id": "another"},
        {"isolation.level": "read_uncommitted"},
    ],
)
def test_settings_that_would_lose_records_of_a_consumer_are_refused(given: dict[str, Any]) -> None:
    (name,) = given
    with pytest.raises(ConfigRefused, match=name):
        consumer_settings({**BROKER, **given}, "g")


def test_nor_may_they_hide_in_the_settings_of_topics() -> None:
    nested = {"default.topic.config": {"auto.offset.reset": "latest"}}
    with pytest.raises(ConfigRefused, match=r"auto\.offset\.reset is 'latest'"):
        consumer_settings({**BROKER, **nested}, "g")


NO_ACKS = [{"acks": 0}, {"acks": "0"}, {"request.required.acks": 0}]
NESTED = {"default.topic.config": {"acks": 0}}


@pytest.mark.parametrize("given", [*NO_ACKS, NESTED])
def test_without_acks_there_would_be_no_receipts(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigRefused, match=r"acks is 0: .* leave acks out"):
        producer_settings({**BROKER, **given})


@pytest.mark.parametrize("given", [{"acks": 1}, {"request.required.acks": "1"}])
def test_what_one_broker_alone_has_is_not_stored_for_retries_and_half_messages(
    given: dict[str, Any],
) -> None:
    with pytest.raises(ConfigRefused, match="acks is 1, it must be 'all'"):
        RetryConsumer(BROKER, "g", ["orders"], print, producer_config=given)
    with pytest.raises(ConfigRefused, match="acks is 1, it must be 'all'"):
        TransactionalDelayProducer({**BROKER, **given}, Listener(), "checks")


class Listener:
    def check(self, _half: HalfMessage) -> State:
        return State.UNKNOWN


def test_a_transactional_id_is_refused_by_the_retry_consumer_and_told_what_to_do() -> None:
    given = {"transactional.id": "billing-1"}
    with pytest.raises(ConfigRefused, match=r"transactional\.id out, and make handlers repeatable"):
        RetryConsumer(BROKER, "g", ["orders"], print, producer_config=given)


def test_only_how_to_reach_the_broker_is_passed_on_from_one_client_to_the_other() -> None:
    given = {**BROKER, "sasl.username": "me", "session.timeout.ms": 1, "fetch.min.bytes": 1}
    assert connection_settings(given) == {**BROKER, "sasl.username": "me"}
