"""The marks topic on the broker: made, checked, and read."""

import time
from collections.abc import Callable, Collection, Mapping
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic

from proxy.dead_letters.letters.letter import Place
from proxy.dead_letters.letters.marks import Mark, Replayed, read_mark, read_mark_key
from proxy.dead_letters.topic_reader import TopicReader
from proxy.errors import BrokerRefused
from proxy.kafka.replication import UNPACKED

ASK_TIMEOUT_S: Final = 10.0
SETTLED_WITHIN_S: Final = 30.0
LOOK_EVERY_S: Final = 0.2
CLOCKS_APART_MS: Final = 3_600_000
"""Marks are stamped by another clock than letters: how much older a mark may seem."""
NOT_THERE_YET: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    }
)
CONFIG: Final = {
    "cleanup.policy": "compact",
    "message.timestamp.type": "LogAppendTime",
    **UNPACKED,
}


def create_marks_topic(topic: str, admin: AdminClient) -> None:
    """Make the topic; one that another replay has just made is fine. Raises BrokerRefused."""
    wanted = NewTopic(topic, num_partitions=1, config=CONFIG)
    try:
        admin.create_topics([wanted], request_timeout=ASK_TIMEOUT_S)[topic].result()
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise BrokerRefused(
                f"The topic {topic}, which keeps account of replays, could not be created: "
                f"{error.args[0].str()}.",
                "Create it by hand (1 partition, cleanup.policy=compact).",
            ) from None


def await_there(reader: TopicReader, sleep: Callable[[float], None] = time.sleep) -> None:
    """Return when every broker that is asked knows the topic, which has just been made."""
    for _ in range(round(SETTLED_WITHIN_S / LOOK_EVERY_S)):
        try:
            reader.spans()
            return
        except KafkaException as error:
            if error.args[0].code() not in NOT_THERE_YET:
                raise
        sleep(LOOK_EVERY_S)
    reader.spans()


def refuse_forgetful(topic: str, admin: AdminClient) -> None:
    """Raises BrokerRefused when the topic would forget marks, and letters be replayed twice.

    Without the right to ask nothing is known, and nothing refused.
    """
    resource = ConfigResource(ResourceType.TOPIC, topic)
    try:
        answers = admin.describe_configs([resource], request_timeout=ASK_TIMEOUT_S)
        policy = str(answers[resource].result()["cleanup.policy"].value)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return
        raise
    if policy != "compact":
        raise BrokerRefused(
            f"The topic {topic} keeps account of which dead letters were replayed, but its "
            f"cleanup.policy is {policy}: what it forgets could be replayed twice.",
            "Set its cleanup.policy to compact.",
        )


def await_settled(reader: TopicReader, uncommitted: TopicReader) -> None:
    """Return when no transaction is open on the topic. Raises BrokerRefused when one stays so."""
    deadline_s = time.monotonic() + SETTLED_WITHIN_S
    while reader.spans() != uncommitted.spans():
        if time.monotonic() > deadline_s:
            raise BrokerRefused(
                "A transaction of an earlier replay does not end, so it is not known which "
                "letters it has replayed.",
                "docs/operations/runbook.md says how to find and abort a hanging transaction.",
            )
        time.sleep(LOOK_EVERY_S)


def read_replayed(reader: TopicReader, replayed: Replayed) -> None:
    """Note every mark there is, from the first on."""
    for partition, span in reader.spans().items():
        for message in reader.records(partition, span):
            replayed.note(message.key(), message.value())


def read_marks(
    reader: TopicReader, topic_id: str, places: Collection[Place], since_ms: int
) -> Mapping[Place, Mark]:
    """The marks of these letters, of which the oldest was written at `since_ms`."""
    marks: dict[Place, Mark] = {}
    if not places:
        return marks
    spans = reader.spans()
    starts = reader.first_since(max(0, since_ms - CLOCKS_APART_MS), spans)
    for partition, span in spans.items():
        for message in reader.records(partition, range(starts[partition], span.stop)):
            key = read_mark_key(message.key())
            mark = read_mark(message.value(), message.timestamp()[1])
            if key and mark and key[0] == topic_id and key[1] in places:
                marks[key[1]] = mark
    return marks
