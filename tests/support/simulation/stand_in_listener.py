"""Consumer that waits on the stand-in Kafka without records (`LongPoll`)."""

from __future__ import annotations

from confluent_kafka import KafkaError, TopicPartition

from tests.support.simulation.stand_in import INGRESS, Record, StandInKafka


class StandInListener:
    """Consumer without a group that only reports whether there are records."""

    def __init__(self, kafka: StandInKafka) -> None:
        self._kafka = kafka
        self._places: list[TopicPartition] = []

    def assign(self, places: list[TopicPartition]) -> None:
        self._places = places

    def unassign(self) -> None:
        self._places = []

    def poll(self, timeout: float) -> Record | None:
        for place in self._places:
            end = self._kafka.stable_end(place.partition)
            log = self._kafka.logs[INGRESS, place.partition]
            for record in log[place.offset : end]:
                if not record.is_aborted:
                    return record
            if place.offset < end:
                error = KafkaError(KafkaError._PARTITION_EOF, "end")
                return Record(INGRESS, place.partition, end, None, None, [], -1, error)
        return None

    close = unassign
