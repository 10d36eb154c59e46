"""Admin client of a stand-in Kafka."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from tests.support.simulation.stand_in import StandInKafka, kafka_error


class StandInAdmin:
    def __init__(self, kafka: StandInKafka) -> None:
        self._kafka = kafka

    def describe_topics(self, asked: Any, **_: object) -> dict[str, Future[Any]]:
        return {name: self._describe(name) for name in asked.topic_names}

    def describe_configs(self, asked: Any, **_: object) -> dict[Any, Future[Any]]:
        """Return the settings of topics. If this is forbidden, the size limit must be found by
        trying."""
        return {resource: self._rules(resource.name) for resource in asked}

    def list_topics(self, topic: str | None, timeout: float) -> SimpleNamespace:
        """Return a broker's metadata. Leader -1 means that there is none."""
        listed = {}
        for name in self._kafka.topics if topic is None else {topic} & self._kafka.topics.keys():
            described = [self._partition(name, n) for n in range(self._kafka.topics[name])]
            partitions = {
                p.id: SimpleNamespace(
                    id=p.id, leader=1 if p.leader else -1, isrs=p.isr, replicas=p.replicas
                )
                for p in described
            }
            listed[name] = SimpleNamespace(partitions=partitions)
        return SimpleNamespace(topics=listed)

    def list_offsets(self, asked: dict[TopicPartition, Any], **_: object) -> dict[Any, Any]:
        """Return the first or the next offset of ingress partitions, open transactions included."""
        return {place: self._offset(place.partition, spec) for place, spec in asked.items()}

    def _offset(self, partition: int, spec: object) -> Future[Any]:
        start, end = self._kafka.log_starts.get(partition, 0), self._kafka.end(partition)
        is_start = spec is OffsetSpec.earliest()  # type: ignore[no-untyped-call]
        answer: Future[Any] = Future()
        answer.set_result(SimpleNamespace(offset=start if is_start else end))
        return answer

    def _partition(self, topic: str, number: int) -> SimpleNamespace:
        place, node = (topic, number), SimpleNamespace(id=1)
        leader = None if place in self._kafka.leaderless else node
        replicas = [node] * (2 if place in self._kafka.short_of_replicas else 1)
        in_sync = [leader] if leader else []
        return SimpleNamespace(id=number, leader=leader, isr=in_sync, replicas=replicas)

    def _rules(self, name: str) -> Future[Any]:
        answer: Future[Any] = Future()
        if not self._kafka.tells_rules:
            answer.set_exception(kafka_error(KafkaError.TOPIC_AUTHORIZATION_FAILED))
            return answer
        largest = str(self._kafka.max_record_bytes.get(name, 1 << 30))
        found = {"max.message.bytes": largest, "cleanup.policy": "delete"}
        found["min.insync.replicas"] = "2"
        answer.set_result({key: SimpleNamespace(value=value) for key, value in found.items()})
        return answer

    def _describe(self, name: str) -> Future[Any]:
        answer: Future[Any] = Future()
        count = self._kafka.topics.get(name)
        if name in self._kafka.unauthorised:
            answer.set_exception(kafka_error(KafkaError.TOPIC_AUTHORIZATION_FAILED))
        elif count is None:
            answer.set_exception(kafka_error(KafkaError.UNKNOWN_TOPIC_OR_PART))
        else:
            partitions = [self._partition(name, number) for number in range(count)]
            found = SimpleNamespace(partitions=partitions, authorized_operations=[])
            answer.set_result(found)
        return answer
