"""How long the audit of so many delivered records takes.

`python -m tests.benchmarks.audit_scale [records ...]`, e.g. 1000000 3000000 10000000. The topics
are written by hand as a proxy that works would have left them (a delivery for each ingress record,
nothing else), on an embedded broker; the audit runs in a process of its own, whose start counts.
Then a tenth as many are written, and an audit goes on from the first.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import TopicPartition

from proxy.embedded import EmbeddedBroker
from proxy.requests.policy import Policy
from tests.benchmarks import clients, topics
from tests.benchmarks.keys import write_keys
from tests.support.installation.committing import commit, metadata, topic_id
from tests.support.quiet_clients import admin_client

MORE = 10
FULL = (1_000_000, 3_000_000, 10_000_000)
PARTITIONS = 4
CHUNK_RECORDS = 10_000
VALUE = bytes(200)
WRITTEN_MS = 1_790_000_000_000
LATE_MS = 7
PARTITIONER: dict[str, clients.Setting] = {"partitioner": "murmur2_random", "linger.ms": 20}
OWN = ("dead-letters", "outcomes", "settings")


def measure(records: int, bootstrap: str, folder: Path, driver_memory: str) -> dict[str, Any]:
    """Write the topics and audit them; write more and audit that."""
    name = f"audit{records}"
    ingress, target = f"{name}.ingress", f"{name}.target"
    others = [f"{name}.{own}" for own in OWN]
    topics.create(bootstrap, ingress, target, *others, stamped_by="CreateTime")
    more = records + records // MORE
    first, second = folder / name, folder / f"{name}-next"
    _fill(bootstrap, ingress, target, range(records))
    _commit(bootstrap, name, ingress, records)
    took_s = _audited(bootstrap, name, first, records, {"driver-memory": driver_memory})
    _fill(bootstrap, ingress, target, range(records, more))
    _commit(bootstrap, name, ingress, more)
    going_on = {"driver-memory": driver_memory, "continue-from": str(first)}
    next_s = _audited(bootstrap, name, second, more - records, going_on)
    topics.delete_starting_with(bootstrap, f"{name}.")
    found = {"records": records, "seconds": round(took_s), "per_s": round(records / took_s)}
    return {**found, "next_records": more - records, "next_seconds": round(next_s)}


def _audited(bootstrap: str, name: str, output: Path, records: int, more: dict[str, str]) -> float:
    """Audit, and check that so many records were judged and delivered; the seconds it took."""
    options = {
        "bootstrap": bootstrap,
        "group": f"{name}.proxy",
        "ingress": f"{name}.ingress",
        "dead-letters": f"{name}.dead-letters",
        "outcomes": f"{name}.outcomes",
        "settings-topic": f"{name}.settings",
        "output": str(output),
        **more,
    }
    given = [part for key, value in options.items() for part in (f"--{key}", value)]
    command = [sys.executable, "-m", "spark_jobs.audit_delivery", *given, "--json"]
    began_s = time.monotonic()
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    took_s = time.monotonic() - began_s
    found = json.loads(said.splitlines()[-1])
    assert found["verdicts"]["delivered"] == records, found
    assert found["violations"] == 0, found
    return took_s


def _fill(bootstrap: str, ingress: str, target: str, records: range) -> None:
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


def _commit(bootstrap: str, name: str, ingress: str, records: int) -> None:
    policy = Policy()
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


@contextmanager
def _broker(folder: Path) -> Iterator[str]:
    with EmbeddedBroker(data_dir=folder / "broker", port=0) as broker:
        admin_client(broker.bootstrap_servers).list_topics(timeout=10)
        yield broker.bootstrap_servers


def main(counts: tuple[int, ...]) -> None:
    """Print a line for each count."""
    with tempfile.TemporaryDirectory(prefix="audit-") as made, _broker(Path(made)) as bootstrap:
        for records in counts:
            print(measure(records, bootstrap, Path(made), "4g"), flush=True)


if __name__ == "__main__":
    main(tuple(map(int, sys.argv[1:])) or FULL)
