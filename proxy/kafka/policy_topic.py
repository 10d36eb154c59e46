"""The settings topic: policies under their digests, and which partitions were ever served.

Compacted, written once per change of settings and per partition, read whole at start (DESIGN 5.3,
5.8). The marks of service tell a new partition from one whose committed offset was lost. They also
keep which policy judged from which offset on, for an audit: the committed metadata forgets that as
the floor passes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import structlog
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from proxy.errors import BrokerRefused, StartOverRefused
from proxy.kafka import pauses
from proxy.kafka.client_settings import connected
from proxy.kafka.topics import TopicFacts
from proxy.records.position import PolicyFrom
from proxy.requests.policy import Policy

READ_TIMEOUT_S: Final = 30.0
WRITE_TIMEOUT_S: Final = 30.0
SERVED: Final = "served"
MOST_POLICIES: Final = 256
"""So many changes of settings are remembered for each partition: at most 10 KB."""

log = structlog.get_logger(__name__)


class Served(NamedTuple):
    """The topic of that id was served, and these policies judged from their first offsets on."""

    topic_id: str
    policies: tuple[PolicyFrom, ...] = ()

    def joined(self, topic_id: str, policies: Sequence[PolicyFrom]) -> Served:
        """With what counts now; of another topic nothing is remembered."""
        known = self.policies if topic_id == self.topic_id else ()
        older = [one for one in known if one.first_offset < policies[0].first_offset]
        return Served(topic_id, (*older, *policies)[-MOST_POLICIES:])

    def to_json(self) -> str:
        """The record's value."""
        return json.dumps(self._asdict(), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> Served:
        """Raises ValueError, KeyError, TypeError when it is no such record."""
        found = json.loads(text)
        topic_id = str(found["topic_id"])
        policies = found.get("policies", ())
        return cls(topic_id, tuple(PolicyFrom(int(n), str(digest)) for n, digest in policies))


class PolicyTopic:
    """What the settings topic holds, by digest, and the way to add to it."""

    def __init__(self, kafka: Mapping[str, Any], topic: str, group_id: str) -> None:
        self._kafka, self._topic, self._group_id = dict(kafka), topic, group_id
        self._policies: dict[str, Policy] = {}
        self._served: dict[str, Served] = {}
        self._load()

    def policy(self, digest: str) -> Policy:
        """Raises StartOverRefused: without it the fate of older records cannot be known."""
        if digest not in self._policies:
            raise StartOverRefused(
                f"The committed offsets name the settings {digest}, which the topic {self._topic} "
                "does not hold.",
                "Restore that topic's records; do not delete or empty it while records wait.",
            )
        return self._policies[digest]

    def ensure(self, policy: Policy) -> str:
        """Make sure that the topic holds the policy before any offset refers to it."""
        digest = policy.digest
        if digest not in self._policies:
            self._write(digest, policy.to_json())
            self._policies[digest] = policy
        return digest

    def served_topic_id(self, topic: str, partition: int) -> str | None:
        """Id of the topic whose offsets this group has committed here before; None if never."""
        served = self._served.get(self._mark(topic, partition))
        return None if served is None else served.topic_id

    def mark_served(
        self, topic: TopicFacts, partition: int, policies: Sequence[PolicyFrom]
    ) -> None:
        """Remember that this partition has a committed offset, and the policies committed there."""
        mark = self._mark(topic.name, partition)
        known = self._served.get(mark, Served(topic.topic_id))
        served = known.joined(topic.topic_id, policies)
        if self._served.get(mark) != served:
            self._write(mark, served.to_json())
            self._served[mark] = served

    def _mark(self, topic: str, partition: int) -> str:
        return f"{SERVED}/{self._group_id}/{topic}/{partition}"

    def _load(self) -> None:
        consumer = Consumer(
            {
                **self._kafka,
                "group.id": f"{self._group_id}-settings-reader",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,
            }
        )
        try:
            metadata = consumer.list_topics(self._topic, READ_TIMEOUT_S).topics[self._topic]
            if metadata.error is not None:
                raise KafkaException(metadata.error)
            open_ends = set(metadata.partitions)
            consumer.assign(
                [TopicPartition(self._topic, p, OFFSET_BEGINNING) for p in metadata.partitions]
            )
            while open_ends:
                message = consumer.poll(READ_TIMEOUT_S)
                if message is None:
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer in time"))
                self._note(message, open_ends)
        finally:
            consumer.close()

    def _note(self, message: Message, open_ends: set[int]) -> None:
        error = message.error()
        if error is not None:
            if error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            open_ends.discard(message.partition() or 0)
            return
        key = (message.key() or b"").decode("utf-8", "replace")
        try:
            self._read(key, message.value() or b"")
        except (ValueError, KeyError, TypeError) as problem:
            log.warning("record of the settings topic not understood", key=key, why=str(problem))

    def _read(self, key: str, value: bytes) -> None:
        if key.startswith(SERVED + "/"):
            self._served[key] = Served.from_json(value)
            return
        if key.startswith(pauses.PREFIX):
            return
        policy = Policy.from_json(value)
        if policy.digest == key:
            self._policies[key] = policy

    def _write(self, key: str, value: str) -> None:
        producer = connected(Producer({**self._kafka, "enable.idempotence": True}), self._topic)
        failed: list[KafkaError] = []

        def on_delivery(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failed.append(error)

        producer.produce(self._topic, value, key, on_delivery=on_delivery)
        if producer.flush(WRITE_TIMEOUT_S):
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer in time"))
        if failed:
            raise BrokerRefused(
                f"The topic {self._topic} does not take a record: {failed[0].str()}.",
                "The proxy must be able to write there before it can judge any record.",
            )
