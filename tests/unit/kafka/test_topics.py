"""The proxy's own topics are created, and exist when asked for."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from structlog.testing import capture_logs

from proxy.config.settings import Settings, TopicSettings
from proxy.errors import BrokerLate, TopicMissing
from proxy.kafka import topics
from proxy.kafka.access import Connection
from proxy.kafka.topics import (
    TOPIC_EVERY_S,
    TopicFacts,
    TopicWatch,
    changes_topic,
    create_missing_topics,
    ensure_topics,
    own_topics,
)

OWN = set(own_topics(Settings()))
EVERY = {*OWN, *changes_topic(Settings())}


class LateAdmin:
    """Broker that shows created topics only at the `late`-th query."""

    def __init__(self, late: int) -> None:
        self.made: list[str] = []
        self.wanted: list[NewTopic] = []
        self.asked_since = 0
        self._late = late

    def list_topics(self, **_: object) -> SimpleNamespace:
        self.asked_since += bool(self.made)
        topics = self.made if self.asked_since >= self._late else []
        return SimpleNamespace(topics=topics, brokers=range(4))

    def create_topics(self, wanted: list[NewTopic], **_: object) -> dict[str, Future[Any]]:
        self.made, self.wanted = [one.topic for one in wanted], wanted
        done: Future[Any] = Future()
        done.set_result(None)
        return dict.fromkeys(self.made, done)

    def describe_topics(self, asked: TopicCollection, **_: object) -> dict[str, Future[Any]]:
        unknown: Future[Any] = Future()
        unknown.set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
        return dict.fromkeys(asked.topic_names, unknown)


def made_by(admin: LateAdmin) -> set[str]:
    ensure_topics(Settings(), cast(Connection, admin))
    return set(admin.made)


def test_topics_just_made_are_waited_for_until_the_broker_knows_them() -> None:
    admin = LateAdmin(late=3)
    assert made_by(admin) == OWN
    assert admin.asked_since == 3


def test_a_broker_that_never_tells_is_waited_for_no_longer_than_allowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topics, "KNOWN_WITHIN_S", 0.0)
    assert made_by(LateAdmin(late=99)) == OWN


def test_a_proxy_that_may_not_create_topics_says_which_one_is_missing() -> None:
    admin = LateAdmin(late=1)
    may_not = Settings(topics=TopicSettings(create=False))
    with pytest.raises(TopicMissing, match=r"timer\.ingress.*topics create"):
        ensure_topics(may_not, cast(Connection, admin))
    assert admin.made == []


def test_a_person_may_have_topics_created_that_the_proxy_may_not_create() -> None:
    may_not = Settings(topics=TopicSettings(create=False))
    assert set(create_missing_topics(may_not, cast(Connection, LateAdmin(late=1)))) == EVERY


@pytest.mark.parametrize(
    "code", [KafkaError._TIMED_OUT, KafkaError.REQUEST_TIMED_OUT, KafkaError.NOT_CONTROLLER]
)
def test_a_broker_that_does_not_answer_in_time_has_refused_no_topic(code: int) -> None:
    class SilentAdmin(LateAdmin):
        def create_topics(self, wanted: list[NewTopic], **_: object) -> dict[str, Future[Any]]:
            late: Future[Any] = Future()
            late.set_exception(KafkaException(KafkaError(code)))
            return {one.topic: late for one in wanted}

        def sentence(self, error: KafkaException) -> BrokerLate:
            return BrokerLate("kafka:9092", error.args[0].str())

    with pytest.raises(BrokerLate, match="does not answer in time"):
        made_by(SilentAdmin(late=1))


def test_topics_have_as_many_replicas_as_the_cluster_can_give_up_to_three() -> None:
    admin = LateAdmin(late=1)
    made_by(admin)
    assert {one.replication_factor for one in admin.wanted} == {3}
    assert {(one.config or {})["min.insync.replicas"] for one in admin.wanted} == {"2"}


class WatchedTopic:
    def __init__(self) -> None:
        self.answers: list[Future[Any]] = []
        self.grown: list[int] = []
        self._now_s = 0.0
        admin = cast(AdminClient, SimpleNamespace(describe_topics=self._describe))
        facts = TopicFacts("timer.ingress", "a-b_", 4)
        self._watch = TopicWatch(admin, facts, self.grown.append, lambda: self._now_s)

    def found(self, topic_id: str | Exception, partitions: int = 4) -> list[bool]:
        self._now_s += TOPIC_EVERY_S
        seen = [self._watch.is_another(), self._watch.is_another()]
        if isinstance(topic_id, Exception):
            self.answers[-1].set_exception(topic_id)
        else:
            described = SimpleNamespace(topic_id=topic_id, partitions=[None] * partitions)
            self.answers[-1].set_result(described)
        return [*seen, self._watch.is_another(), self._watch.is_another()]

    def _describe(self, _: object, **__: object) -> dict[str, Future[Any]]:
        self.answers.append(Future())
        return {"timer.ingress": self.answers[-1]}


def test_a_topic_that_is_another_is_noticed_and_one_that_cannot_be_asked_for_is_not() -> None:
    topic = WatchedTopic()
    assert topic.found("a+b/") == [False] * 4
    assert topic.found(KafkaException(KafkaError(KafkaError._TIMED_OUT))) == [False] * 4
    assert topic.found("c+b/", 5) == [False, False, True, False]
    assert len(topic.answers) == 3
    assert topic.grown == []


def test_partitions_that_were_added_are_told_once_and_said_in_the_log() -> None:
    topic = WatchedTopic()
    with capture_logs() as logs:
        for partitions in (4, 6, 6, 7):
            assert topic.found("a+b/", partitions) == [False] * 4
    assert topic.grown == [6, 7]
    assert [(line["before"], line["partitions"]) for line in logs] == [(4, 6), (6, 7)]
