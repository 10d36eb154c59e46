"""Committed offsets of the proxy's consumer group on the ingress topic."""

import time
from dataclasses import dataclass

from confluent_kafka import Consumer, TopicPartition

from tools.benchmarks import clients
from tools.benchmarks.errors import BenchmarkError

POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Progress:
    at_s: float
    records: int


class IngressOffsets:
    """Reader of ingress end offsets and of the proxy's committed offsets. It never joins the
    group."""

    def __init__(self, bootstrap_servers: str, group_id: str, topic: str) -> None:
        self._consumer: Consumer = clients.consumer(bootstrap_servers, {"group.id": group_id})
        numbers = self._consumer.list_topics(topic, timeout=10).topics[topic].partitions
        self._partitions = [TopicPartition(topic, number) for number in numbers]

    def close(self) -> None:
        self._consumer.close()

    def written(self) -> int:
        return sum(
            self._consumer.get_watermark_offsets(partition, timeout=10)[1]
            for partition in self._partitions
        )

    def committed(self) -> Progress:
        answers = self._consumer.committed(self._partitions, timeout=10)
        return Progress(time.monotonic(), sum(max(answer.offset, 0) for answer in answers))

    def wait_for(self, records: int, timeout_s: float) -> Progress:
        deadline_s = time.monotonic() + timeout_s
        while (look := self.committed()).records < records:
            if look.at_s > deadline_s:
                raise BenchmarkError(
                    f"The proxy had committed {look.records} of {records} ingress records "
                    f"after {timeout_s:.0f} s. See its log in the benchmark's folder."
                )
            time.sleep(POLL_S)
        return look
