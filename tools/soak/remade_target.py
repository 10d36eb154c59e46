"""Target that is deleted and recreated under load. Before a deletion it is closed to new records
and read to its end, so that the judges see all deliveries. At the end of the soak these deliveries
are written to the last topic of this name, with their timestamps."""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError, KafkaException

from tests.support.installation.cluster import Cluster
from tests.support.installation.installation import BROKER_STAMPED
from tests.support.installation.topic_copies import append
from tests.support.oracle.committed_reader import CommittedReader
from tests.support.oracle.standstill import held_back, log_ends
from tests.support.quiet_clients import admin_client
from tests.support.records import Incoming, has_topic, set_topic_config
from tests.support.waiting import wait_for

PARTITIONS: Final = 2
CLOSED: Final = {"max.message.bytes": "100"}
"""Settings of a closed topic. This size is too small for a delivery with the proxy's headers, but
large enough for a transaction marker."""
OPEN: Final = {"max.message.bytes": "1048588"}
"""Kafka's default, set explicitly. A broker may learn of a deletion and a recreation together when
it starts. Then it keeps the old topic's settings, unless the new topic sets them (seen with Kafka
4.3.1)."""
AT_ONCE: Final = 20_000
WITHIN_S: Final = 180


class RemadeTarget:
    """Target that is deleted and recreated. `kept` holds the committed records of the deleted
    topics."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.topic, self.kept = topic, list[Incoming]()
        self._cluster, self._servers = cluster, cluster.direct_servers
        self.create()

    def create(self) -> None:
        config = {"retention.ms": "-1", **OPEN, **BROKER_STAMPED}
        try:
            self._cluster.create_topic(self.topic, PARTITIONS, config=config)
        except KafkaException as failed:
            if failed.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
            self._cluster.await_leader(self.topic)  # the answer was late, so the client asked twice

    def delete(self) -> None:
        set_topic_config(self._servers, self.topic, CLOSED)
        wait_for(self._is_read, WITHIN_S, f"the end of {self.topic}")
        admin = admin_client(self._servers)
        admin.delete_topics([self.topic])[self.topic].result(WITHIN_S)
        wait_for(lambda: not has_topic(self._servers, self.topic), WITHIN_S, "it to be gone")

    def write_back(self) -> None:
        as_given = {"message.timestamp.type": "CreateTime"}
        set_topic_config(self._servers, self.topic, as_given)
        for first in range(0, len(self.kept), AT_ONCE):
            append(self._servers, self.topic, self.kept[first : first + AT_ONCE])

    def _is_read(self) -> bool:
        """Return whether everything was read, nothing arrived during the read, and no
        transaction is open."""
        before = log_ends(self._servers, self.topic)
        with CommittedReader(self._servers) as reader:
            found = [placed.record for placed in reader.read([self.topic], awaits_open=False)]
        is_over = not any(held_back(self._servers, [self.topic]))
        if not is_over or log_ends(self._servers, self.topic) != before:
            return False
        self.kept += found
        return True
