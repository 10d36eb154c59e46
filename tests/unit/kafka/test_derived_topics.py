"""Topics named after consumer groups: created when needed, with a limit."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.cimpl import NewTopic

from proxy.config.settings import RetryGroupSettings, RetrySettings, Settings, TopicSettings
from proxy.kafka.topics import LISTED_FOR_S, DerivedTopics
from tests.support.simulation.stand_in import kafka_error

NAMED = RetrySettings(unnamed_groups=2, groups={"named": RetryGroupSettings()})


class Admin:
    """Broker with some topics. Creation fails with `error`, if given."""

    def __init__(self, *topics: str, error: int | None = None) -> None:
        self.topics = dict.fromkeys(topics)
        self.wanted: list[NewTopic] = []
        self.listed = self.listed_groups = 0
        self.groups: set[str] | None = set()
        self._error = error

    def list_topics(self, **_: object) -> SimpleNamespace:
        self.listed += 1
        return SimpleNamespace(topics=self.topics, brokers=range(2))

    def list_consumer_groups(self, **_: object) -> Future[SimpleNamespace]:
        self.listed_groups += 1
        done: Future[SimpleNamespace] = Future()
        if self.groups is None:
            done.set_exception(kafka_error(KafkaError.CLUSTER_AUTHORIZATION_FAILED, "no"))
        else:
            valid = [SimpleNamespace(group_id=group) for group in self.groups]
            done.set_result(SimpleNamespace(valid=valid))
        return done

    def create_topics(self, wanted: list[NewTopic], **_: object) -> dict[str, Future[None]]:
        self.wanted += wanted
        done: Future[None] = Future()
        if self._error is None:
            self.topics[wanted[0].topic] = None
            done.set_result(None)
        else:
            done.set_exception(kafka_error(self._error, "no"))
        return {wanted[0].topic: done}


def made(admin: Admin, topic: str, *, create: bool = True) -> str | None:
    settings = Settings(retry=NAMED, topics=TopicSettings(create=create))
    return DerivedTopics(cast(Any, admin), settings).create(topic)


@pytest.mark.parametrize("topic", ["retry.named", "dlq.named", "retry.one", "dlq.one", "retry.new"])
def test_topic_of_a_group_is_made_while_there_are_few(topic: str) -> None:
    admin = Admin("retry.one", "dlq.one", "orders", "retry.named")
    assert made(admin, topic) is None
    assert topic in admin.topics


def test_topic_of_a_group_is_replicated_like_the_others() -> None:
    admin = Admin()
    made(admin, "retry.one")
    (wanted,) = admin.wanted
    assert (wanted.replication_factor, wanted.config) == (
        2,
        {"min.insync.replicas": "1", "compression.type": "uncompressed"},
    )


@pytest.mark.parametrize("topic", ["retry.named", "dlq.one"])
def test_groups_that_are_named_or_have_a_topic_may_have_more_however_many_there_are(
    topic: str,
) -> None:
    assert made(Admin("retry.one", "retry.two", "retry.three"), topic) is None


def test_one_group_too_many_gets_no_topic_but_the_reason() -> None:
    admin = Admin("retry.one", "dlq.two")
    why = made(admin, "retry.three")
    assert why is not None
    assert "retry.unnamed_groups limits such topics: 2 consumer groups have them" in why
    assert "retry.unnamed_groups" in why
    assert "retry.three" not in admin.topics


def test_many_invented_groups_cost_one_question() -> None:
    admin = Admin("retry.one", "dlq.two")
    now_s = [100.0]
    topics = DerivedTopics(cast(Any, admin), Settings(retry=NAMED), lambda: now_s[0])
    assert all(topics.create(f"retry.invented-{number}") for number in range(1_000))
    assert admin.listed == 1
    del admin.topics["dlq.two"]
    now_s[0] += LISTED_FOR_S
    assert topics.create("retry.invented-1") is None
    assert topics.create("retry.invented-2")


def test_topics_that_keep_account_of_replays_are_no_group_s_topics() -> None:
    admin = Admin("dlq.one", "dlq.one.replayed", "dlq.two.replayed")
    assert made(admin, "retry.three") is None
    assert admin.topics.keys() >= {"retry.three"}


@pytest.mark.parametrize(
    ("topic", "create"),
    [("orders", True), ("retry.one", False), ("dlq.one.replayed", True), ("timer.x", True)],
)
def test_what_is_no_business_of_the_proxy_is_left_alone(topic: str, create: bool) -> None:
    admin = Admin()
    assert made(admin, topic, create=create) == ""
    assert admin.topics == {}


def test_topic_that_another_worker_has_just_made_is_there() -> None:
    assert made(Admin(error=KafkaError.TOPIC_ALREADY_EXISTS), "retry.one") is None


def test_broker_that_refuses_is_quoted() -> None:
    why = made(Admin(error=KafkaError.POLICY_VIOLATION), "retry.one")
    assert why == "the topic retry.one could not be created: no"


def test_a_right_that_is_missing_is_named_with_the_line_that_grants_it() -> None:
    why = made(Admin(error=KafkaError.TOPIC_AUTHORIZATION_FAILED), "retry.one")
    assert why is not None
    assert why.endswith("--operation Create --topic retry.one")


def test_invented_groups_cannot_use_up_the_room_of_one_that_consumes() -> None:
    admin = Admin(*(f"retry.invented-{number}" for number in range(130)))
    assert made(admin, "retry.real")
    admin.groups = {"real", "delay-proxy"}
    assert made(admin, "retry.real") is None
    assert made(admin, "dlq.real") is None
    assert made(admin, "retry.invented-200")


def test_groups_that_consume_take_no_room_from_others() -> None:
    admin = Admin("retry.one", "retry.two")
    admin.groups = {"one"}
    assert made(admin, "retry.three") is None
    assert made(admin, "retry.four")


def test_a_broker_that_does_not_list_groups_leaves_the_bound_as_it_is() -> None:
    admin = Admin("retry.one", "retry.two")
    admin.groups = None
    assert made(admin, "retry.three")
    assert made(admin, "dlq.two") is None


def test_the_groups_are_asked_for_where_the_bound_is_met_alone_and_once_for_many() -> None:
    admin = Admin("retry.one")
    topics = DerivedTopics(cast(Any, admin), Settings(retry=NAMED), lambda: 100.0)
    assert topics.create("retry.two") is None
    assert admin.listed_groups == 0
    assert all(topics.create(f"retry.invented-{number}") for number in range(100))
    assert admin.listed_groups == 1
