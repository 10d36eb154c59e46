"""Two processes that write the hundreds of `mix`. Then positions are committed as the proxy commits
them."""

import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from confluent_kafka import Producer, TopicPartition

from proxy.kafka.settings_topic import (
    HOP_KEY,
    HOP_KEYS_PARTITION,
    SERVED,
    ServedPartition,
    overdue_key,
    settings_key,
)
from proxy.protocol.policy import Policy
from proxy.protocol.position import LAST_OFFSET, PolicyFrom, Position
from proxy.protocol.proofs import HopAuthenticator, HopKey
from tests.support.installation.committing import commit, topic_id
from tools.benchmarks import clients
from tools.benchmarks import topics as broker_topics
from tools.benchmarks.audit_scale.mix import RECORDS, Mix, Written
from tools.benchmarks.audit_scale.times import ROLL_AFTER_MS, Times
from tools.benchmarks.audit_scale.topics import Topics
from tools.benchmarks.processes import Announce, Job

PARTITIONS: Final = 4
WRITERS: Final = 2
VALUES: Final = 64
WRITTEN_WITHIN_S: Final = 3_600
NO_RULES: Final = "[]"
PRODUCER: Final[dict[str, clients.Setting]] = {
    "partitioner": "murmur2_random",
    "linger.ms": 20,
    "batch.size": 262_144,
}


@dataclass(frozen=True, slots=True)
class Site:
    bootstrap: str
    topics: Topics
    topic_id: str
    key: HopKey
    times: Times
    value_bytes: int

    @classmethod
    def create(cls, bootstrap: str, name: str, now_ms: int, value_bytes: int) -> "Site":
        """Create new topics that keep the producers' timestamps."""
        topics = Topics(name)
        all_topics = (*topics.own, *topics.targets)
        broker_topics.create(bootstrap, *all_topics, stamped_by="CreateTime", partitions=PARTITIONS)
        ingress_id = topic_id(bootstrap, topics.ingress)
        return cls(bootstrap, topics, ingress_id, HopKey.new(), Times(now_ms), value_bytes)

    @property
    def policy(self) -> Policy:
        return Policy(
            own_topics=self.topics.own, roll_after_ms=ROLL_AFTER_MS, hop_key=self.key.digest
        )

    @property
    def mix(self) -> Mix:
        drawn = random.Random(self.topics.name)
        values = tuple(drawn.randbytes(self.value_bytes) for _ in range(VALUES))
        return Mix(self.topics, HopAuthenticator(self.key, self.topic_id), values)


def write(site: Site, hundreds: range) -> None:
    jobs = [Job(_write, site, hundreds, number) for number in range(WRITERS)]
    for job in jobs:
        with job:
            job.result(WRITTEN_WITHIN_S)
    _write_settings(site)
    places = [_place(site, number, hundreds.stop) for number in range(PARTITIONS)]
    commit(site.bootstrap, site.topics.group, places)


def _write(_: Announce, site: Site, hundreds: range, writer: int) -> None:
    """Write every `WRITERS`th partition. A partition has only one writer, so its order is kept."""
    asked, ended = (clients.producer(site.bootstrap, PRODUCER) for _ in range(2))
    mix = site.mix
    for hundred in hundreds:
        number, partition = divmod(hundred, PARTITIONS)
        if partition % WRITERS == writer:
            made = mix.hundred(partition, number * RECORDS, site.times.moment(number))
            _put(asked, made.records())
            _put(ended, made.ends())
    clients.finish(asked)
    clients.finish(ended)


def _put(client: Producer, records: Iterable[Written]) -> None:
    """Pass arguments by position: named ones make `produce` a quarter slower."""
    produce = client.produce
    for topic, value, key, partition, headers, at_ms in records:
        while True:
            try:
                produce(topic, value, key, partition, None, None, at_ms, headers)  # type: ignore[arg-type]
            except BufferError:
                clients.wait_for_room(client)
            else:
                break


def _write_settings(site: Site) -> None:
    topics, policy, group = site.topics, site.policy, site.topics.group
    client, held = clients.producer(site.bootstrap), ServedPartition(site.topic_id, _in_force(site))
    records = {
        policy.digest: policy.to_json(),
        overdue_key(group, NO_RULES): NO_RULES,
        **{
            settings_key(SERVED, group, topics.ingress, one): held.to_json()
            for one in range(PARTITIONS)
        },
    }
    secret, name = site.key.secret.hex(), f"{HOP_KEY}{site.key.digest}"
    client.produce(topics.settings, secret, name, HOP_KEYS_PARTITION)
    for key, text in records.items():
        client.produce(topics.settings, text, key)
    clients.finish(client)


def _place(site: Site, partition: int, hundreds: int) -> TopicPartition:
    next_offset = RECORDS * len(range(partition, hundreds, PARTITIONS))
    position = Position(
        next_offset,
        site.times.watermark_ms,
        LAST_OFFSET,
        0,
        _in_force(site),
        site.topic_id,
    )
    return TopicPartition(site.topics.ingress, partition, next_offset, position.to_metadata())


def _in_force(site: Site) -> tuple[PolicyFrom, ...]:
    return (PolicyFrom(0, site.policy.digest),)
