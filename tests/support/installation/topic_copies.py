"""Topics rewritten with changed content, which an auditor must notice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from confluent_kafka import Producer
from confluent_kafka.cimpl import NewTopic

from tests.support.oracle.committed_reader import CommittedReader
from tests.support.quiet_clients import admin_client
from tests.support.records import Headers, Incoming, has_topic
from tests.support.waiting import wait_for

TIMEOUT_S = 180
SETTINGS = {"retention.ms": "-1", "message.timestamp.type": "CreateTime"}


class TopicCopy:
    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap, self._topic = bootstrap, topic
        with CommittedReader(bootstrap) as reader:
            self.records = [placed.record for placed in reader.read([topic])]

    def of_value(self, value: bytes) -> int:
        (found,) = [at for at, record in enumerate(self.records) if record.value == value]
        return found

    def change(self, at: int, **fields: object) -> Incoming:
        before = self.records[at]
        self.records[at] = replace(before, **fields)  # type: ignore[arg-type]
        return before

    def rewrite(self) -> None:
        admin = admin_client(self._bootstrap)
        partitions = len(admin.list_topics(self._topic, TIMEOUT_S).topics[self._topic].partitions)
        admin.delete_topics([self._topic])[self._topic].result(TIMEOUT_S)
        wait_for(lambda: not has_topic(self._bootstrap, self._topic), TIMEOUT_S, "it to be gone")
        wanted = NewTopic(self._topic, partitions, 1, config=SETTINGS)
        admin.create_topics([wanted])[self._topic].result(TIMEOUT_S)
        append(self._bootstrap, self._topic, self.records)


def append(
    bootstrap: str, topic: str, records: Sequence[Incoming], *, aborted: bool = False
) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"plant-{topic}"})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    for one in records:
        producer.produce(
            topic,
            one.value,
            one.key,
            one.partition,
            headers=[*one.headers],
            timestamp=one.timestamp_ms,
        )
    assert not producer.flush(TIMEOUT_S)
    if aborted:
        producer.abort_transaction(TIMEOUT_S)
    else:
        producer.commit_transaction(TIMEOUT_S)


def with_header(headers: Headers, name: str, value: bytes) -> Headers:
    assert name in dict(headers), name
    return [(found, value if found == name else kept) for found, kept in headers]
