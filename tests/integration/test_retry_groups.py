"""Retries of consumer groups on a real broker: levels, policies, a group's own dead letters."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from functools import partial

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

from tests.support.installation.installation import Installation
from tests.support.installation.story import Story
from tests.support.oracle.asked import Rules, levels_ms
from tests.support.oracle.committed_reader import CommittedReader
from tests.support.quiet_clients import admin_client
from tests.support.records import Headers, Outgoing, has_topic
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.core]

LEVELS = "10ms 20ms 30ms 40ms 50ms 60ms 70ms 80ms"
BY_LEVELS = {0: 30, 1: 40, 2: 50, 5: 80, 6: 80, 15: 80}
DOUBLED = {0: 25, 1: 50, 2: 100, 3: 120, 7: 120, 15: 120}
OWN_LIST = {0: 5, 1: 70, 2: 150}
LATE = {0: 60, 1: 70, 2: 80, 3: 80}
POLICIES = {"plain": BY_LEVELS, "doubled": DOUBLED, "own-list": OWN_LIST, "late": LATE}
MADE_BY_THE_PROXY = "late"
CREATED_WITHIN_S = 180
TIMES = [(group, n, ms) for group, waits_ms in POLICIES.items() for n, ms in waits_ms.items()]
BAD: dict[str, tuple[str, dict[str, bytes]]] = {
    "negative": ("retry-bad", {"retry_group": b"g", "attempt": b"-1"}),
    "text": ("retry-bad", {"retry_group": b"g", "attempt": b"twice"}),
    "other digits": ("retry-bad", {"retry_group": b"g", "attempt": "٣".encode()}),
    "very many": ("retry-bad", {"retry_group": b"g", "attempt": b"9" * 10}),
    "no group": ("retry-bad", {"attempt": b"1"}),
    "empty group": ("retry-bad", {"retry_group": b"", "attempt": b"1"}),
    "illegal group": ("target-illegal", {"retry_group": b"a group!", "attempt": b"1"}),
    "illegal group at last": ("target-illegal", {"retry_group": b"a group!", "attempt": b"16"}),
    "long group": ("target-illegal", {"retry_group": b"g" * 244, "attempt": b"1"}),
    "denied group": ("target-refused", {"retry_group": b"denied", "attempt": b"1"}),
    "denied target": ("target-refused", {"retry_group": b"g", "topic": b"retry.denied"}),
}


class Groups(Story):
    """A story with consumer groups of its own."""

    def __init__(self, installation: Installation) -> None:
        self._mark = uuid.uuid4().hex[:6]
        own_ms = {self.group("own-list"): (5, 70, 150)}
        rules = Rules(
            levels_ms=levels_ms(LEVELS),
            delays_ms={
                self.group("doubled"): (25, 50, 100, 120),
                self.group("late"): levels_ms(LEVELS)[5:],
                **own_ms,
            },
            attempts={self.group("own-list"): 3},
        )
        groups = {
            self.group("doubled"): {
                "policy": "exponential",
                "first_delay": "25ms",
                "max_delay": "120ms",
            },
            self.group("own-list"): {
                "policy": "custom",
                "delays": "5ms 70ms 150ms",
                "max_attempts": 3,
            },
            self.group("late"): {"first_level": 6},
        }
        settings = {"levels": LEVELS, "retry": {"groups": groups}}
        super().__init__(installation, rules, targets={"deny": ["retry.denied"]}, **settings)

    def group(self, name: str) -> str:
        return f"{name}-{self._mark}"

    def failed(self, name: str, group: str, attempt: int, **asked: str) -> None:
        self.ask(name, {"retry_group": self.group(group), "attempt": str(attempt), **asked})


@pytest.fixture(scope="module")
def groups(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Groups]:
    installation = Installation(kafka, tmp_path_factory.mktemp("groups"))
    told = Groups(installation)
    try:
        _ask(told)
        told.proxy.start_ready()
        told.send()
        made = f"retry.{told.group(MADE_BY_THE_PROXY)}"
        wait_for(lambda: has_topic(kafka, made), CREATED_WITHIN_S, made)
        installation.targets.append(made)
        told.end()
        yield told
    finally:
        installation.close()


def _ask(told: Groups) -> None:
    orders = told.installation.target()
    for group, waits_ms in POLICIES.items():
        told.installation.named_target(f"dlq.{told.group(group)}")
        if group != MADE_BY_THE_PROXY:
            told.installation.named_target(f"retry.{told.group(group)}")
        for attempt in waits_ms:
            told.failed(f"{group} {attempt}", group, attempt)
    told.tell("never before", retry_group=told.group("plain"))
    told.failed("own topic", "plain", 1, topic=orders)
    told.failed("own time", "plain", 1, delay="7")
    for group, last in (("plain", 16), ("plain", 999_999), ("own-list", 3), ("doubled", 16)):
        told.failed(f"exhausted {group} {last}", group, last, topic=orders, delay="1h")
    told.failed("with an id", "plain", 15, id="retried")
    told.tell("taken back", cancel="retried")
    for name, (_code, asked) in BAD.items():
        told.ask(name, asked)


@pytest.mark.parametrize(("group", "attempt", "wait_ms"), TIMES)
def test_retry_waits_as_long_as_its_groups_policy_says(
    groups: Groups, group: str, attempt: int, wait_ms: int
) -> None:
    name = f"{group} {attempt}"
    assert groups.waited_ms(name) == wait_ms
    assert groups.topics(name) == [f"retry.{groups.group(group)}"]


def test_retry_that_says_no_number_is_the_first(groups: Groups) -> None:
    assert groups.waited_ms("never before") == BY_LEVELS[0]


def test_topic_and_time_that_are_asked_for_win(groups: Groups) -> None:
    assert ".orders-" in groups.topics("own topic")[0]
    assert groups.waited_ms("own topic") == BY_LEVELS[1]
    assert groups.waited_ms("own time") == 7


@pytest.mark.parametrize(
    ("group", "attempt"), [("plain", 16), ("plain", 999_999), ("own-list", 3), ("doubled", 16)]
)
def test_record_that_failed_too_often_goes_to_its_groups_dead_letters_at_once(
    groups: Groups, group: str, attempt: int
) -> None:
    name = f"exhausted {group} {attempt}"
    assert groups.topics(name) == [f"dlq.{groups.group(group)}"]
    assert groups.waited_ms(name) == 0


def test_retry_with_an_id_can_be_cancelled(groups: Groups) -> None:
    assert (groups.said("with an id"), groups.said("taken back")) == (["cancelled"], ["applied"])


@pytest.mark.parametrize("name", BAD)
def test_retry_with_something_wrong_is_a_dead_letter(groups: Groups, name: str) -> None:
    assert groups.reasons(name) == [BAD[name][0]]


def test_consumer_that_always_fails_sees_a_record_sixteen_times(
    installation: Installation,
) -> None:
    group, levels = f"fails-{uuid.uuid4().hex[:6]}", "1ms 2ms 3ms 4ms 5ms"
    retry = installation.named_target(f"retry.{group}")
    dlq = installation.named_target(f"dlq.{group}")
    proxy = installation.proxy(levels=levels)
    proxy.start_ready()
    headers: Headers = [("trace", b"1")]
    with installation.writer() as writer, CommittedReader(installation.bootstrap) as reader:
        for attempt in range(17):
            failed = [("timer-retry-group", group.encode()), ("timer-attempt", b"%d" % attempt)]
            writer.write(Outgoing(b"k", b"value", [*headers, *failed]))
            seen = list(reader.read([retry, dlq], attempt + 1))
            headers = seen[attempt].record.headers
    assert proxy.metric("delay_proxy_retry_attempts_total") == 17
    ends = installation.judge(rules=Rules(levels_ms=levels_ms(levels)))
    topics = [placed.topic for found in ends.deliveries.values() for placed in found]
    assert (topics.count(retry), topics.count(dlq)) == (16, 1)


def _commit(installation: Installation, group: str) -> None:
    offsets = ConsumerGroupTopicPartitions(group, [TopicPartition(installation.ingress, 0, 0)])
    admin = admin_client(installation.bootstrap)
    admin.alter_consumer_group_offsets([offsets])[group].result()


def test_groups_that_producers_invent_make_no_more_topics_than_the_settings_allow(
    installation: Installation,
) -> None:
    named, first, second = "named", "invented-1", "invented-2"
    consuming = f"{installation.name}-consuming"
    _commit(installation, consuming)
    again, gone = f"{installation.name}.again.", f"{installation.name}.gone."
    topics = {**installation.settings("one")["topics"], "retry_prefix": again, "dlq_prefix": gone}
    retry = {"max_attempts": 1, "unnamed_groups": 1, "groups": {named: {"max_attempts": 2}}}
    installation.proxy(topics=topics, retry=retry, levels="1ms").start_ready()
    for group in (first, named, second, consuming, first):
        asked = [("timer-retry-group", group.encode()), ("timer-attempt", b"0")]
        installation.send([Outgoing(group.encode(), b"failed", asked)])
        installation.await_ingested()
    asked = [("timer-retry-group", first.encode()), ("timer-attempt", b"1")]
    installation.send([Outgoing(first.encode(), b"failed for good", asked)])
    made = {again + first, again + named, again + consuming, gone + first}
    for topic in made:
        wait_for(partial(has_topic, installation.bootstrap, topic), CREATED_WITHIN_S, topic)
    installation.targets.extend(made)
    installation.await_ends(6)
    topics_there = admin_client(installation.bootstrap).list_topics(timeout=CREATED_WITHIN_S).topics
    derived = {name for name in topics_there if name.startswith((again, gone))}
    assert derived == made
    with CommittedReader(installation.bootstrap) as reader:
        (letter,) = reader.read([installation.dead_letters], 1)
    said = dict(letter.record.headers)
    assert said["timer-error"] == b"target-unknown"
    assert b"retry.unnamed_groups" in (said["timer-error-detail"] or b"")
