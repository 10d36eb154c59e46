"""Topics as a proxy that works would have left them: a delivery for each ingress record.

All topics of a set, and its group, are named after it: `name.ingress`, `name.target`, `name.proxy`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from confluent_kafka import TopicPartition

from proxy.requests.policy import Policy
from tests.benchmarks import clients, topics
from tests.benchmarks.keys import write_keys
from tests.support.installation.committing import commit, metadata, topic_id

PARTITIONS: Final = 4
CHUNK_RECORDS: Final = 10_000
VALUE: Final = bytes(200)
WRITTEN_MS: Final = 1_790_000_000_000
LATE_MS: Final = 7
PARTITIONER: Final[dict[str, clients.Setting]] = {
    "partitioner": "murmur2_random",
    "linger.ms": 20,
}
OWN: Final = ("dead-letters", "outcomes", "settings")


def create_set(bootstrap: str, name: str) -> None:
    """Create the topics of the set of that name."""
    named = [f"{name}.{own}" for own in ("ingress", "target", *OWN)]
    topics.create(bootstrap, *named, stamped_by="CreateTime")


def audit_options(bootstrap: str, name: str) -> dict[str, str]:
    """The audit's options that name this set, without their dashes."""
    return {
        "bootstrap": bootstrap,
        "group": f"{name}.proxy",
        "ingress": f"{name}.ingress",
        "dead-letters": f"{name}.dead-letters",
        "outcomes": f"{name}.outcomes",
        "settings-topic": f"{name}.settings",
    }


def write_delivered(bootstrap: str, name: str, records: range) -> None:
    """Write these records, by number, into the ingress topic, and what became of them."""
    ingress, target = f"{name}.ingress", f"{name}.target"
    asked, delivered = (
        clients.producer(bootstrap, PARTITIONER),
        clients.producer(bootstrap, PARTITIONER),
    )
    for first in range(records.start, records.stop, CHUNK_RECORDS):
        dues_ms = WRITTEN_MS + np.arange(first, min(records.stop, first + CHUNK_RECORDS)) // 100
        for number, key, due_ms in _rows(first, dues_ms):
            place, due = divmod(number, PARTITIONS), b"%d" % due_ms
            said: clients.Headers = [("timer-topic", target.encode()), ("timer-deliver-at", due)]
            _put(asked, ingress, key, [*said, ("trace", key)], WRITTEN_MS, place[1])
            origin = b"%s/%d/%d" % (ingress.encode(), place[1], place[0])
            stamps: clients.Headers = [("trace", key), ("timer-origin", origin), ("timer-due", due)]
            _put(delivered, target, key, stamps, due_ms + LATE_MS, -1)
    clients.finish(asked)
    clients.finish(delivered)


def _rows(first: int, dues_ms: Any) -> Iterator[tuple[int, bytes, int]]:
    keys = write_keys(first, dues_ms)
    return zip(range(first, first + len(keys)), keys, dues_ms.tolist(), strict=True)


def _put(
    client: Any, topic: str, key: bytes, headers: clients.Headers, at_ms: int, partition: int
) -> None:
    while True:
        try:
            client.produce(topic, VALUE, key, partition, headers=headers, timestamp=at_ms)
        except BufferError:
            clients.wait_for_room(client)
        else:
            return


def commit_read(bootstrap: str, name: str, records: int) -> None:
    """Commit, as the proxy of this set, that the first `records` of the ingress have ended."""
    policy, ingress = Policy(), f"{name}.ingress"
    settings = clients.producer(bootstrap)
    settings.produce(f"{name}.settings", policy.to_json(), policy.digest)
    clients.finish(settings)
    said = {"i": topic_id(bootstrap, ingress), "s": [(0, policy.digest)], "t": WRITTEN_MS * 2}
    counts = [len(range(number, records, PARTITIONS)) for number in range(PARTITIONS)]
    places = [
        TopicPartition(ingress, number, count, metadata(**said))
        for number, count in enumerate(counts)
    ]
    commit(bootstrap, f"{name}.proxy", places)
