"""Record batches that are small when compressed, and huge when a client unpacks them."""

from __future__ import annotations

import json
from collections.abc import Sequence

from confluent_kafka import KafkaError, Producer

from tests.support.installation.installation import Installation
from tests.support.installation.proxy_process import ProxyProcess

BOMB_BYTES = 150_000_000
"""Size of a value in a batch that has 4.6 kB. The client library unpacks at most 100 MB."""
READABLE_BOMB_BYTES = 400_000_000
"""Size of a value in a batch that has 389 kB. The client library unpacks gzip without a limit."""
BATCH_RECORDS = 3
WITHIN_S = 180
Headers = Sequence[tuple[str, str | bytes | None]]


def write_unreadable_batch(installation: Installation) -> None:
    """Write a batch of three records into partition 0. The first record is too large."""
    _write_batch(installation, installation.ingress, "zstd", BOMB_BYTES, ())


def write_readable_bomb(installation: Installation, topic: str, headers: Headers) -> None:
    """Write a batch of three records into partition 0 of the topic. The first record is large."""
    _write_batch(installation, topic, "gzip", READABLE_BOMB_BYTES, headers)


def _write_batch(
    installation: Installation, topic: str, codec: str, first_bytes: int, headers: Headers
) -> None:
    client = {"compression.type": codec, "message.max.bytes": 1_000_000_000}
    gathering = {"linger.ms": 60_000, "batch.size": 500_000_000}
    refused: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": installation.bootstrap, **client, **gathering})
    for size_bytes in (first_bytes, *[10] * (BATCH_RECORDS - 1)):
        producer.produce(
            topic,
            bytes(size_bytes),
            b"k",
            partition=0,
            headers=[*headers],
            on_delivery=lambda error, _: refused.append(error) if error else None,
        )
    assert producer.flush(WITHIN_S) == 0
    assert not refused, refused


def unreadable_at(proxy: ProxyProcess) -> list[tuple[int, int]]:
    code, said = proxy.get("/readyz")
    waiting = json.loads(said).get("not_ready", []) if said else []
    found = [(one["partition"], one["unreadable_at"]) for one in waiting]
    return [] if code == 200 else found
