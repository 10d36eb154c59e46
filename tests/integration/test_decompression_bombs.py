"""New topics refuse decompression bombs. In older topics the proxy and the audit survive them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer

from proxy.config.settings import Settings
from proxy.kafka.topics import own_topics
from tests.support.installation.installation import Installation
from tests.support.installation.unreadable_batch import BATCH_RECORDS, write_readable_bomb
from tests.support.records import Outgoing, new_topic

pytestmark = pytest.mark.integration

SENT = 5
CODECS = ["zstd", "gzip", "lz4", "snappy"]


def _written(kafka: str, codec: str, size_bytes: int, config: dict[str, str]) -> int:
    """Write a record of this many zeros. Return the broker's error code, 0 for success."""
    topic, codes = new_topic(kafka, "bombs", config=config), list[int]()
    client = {"compression.type": codec, "message.max.bytes": 1_000_000_000, "linger.ms": 0}
    producer = Producer({"bootstrap.servers": kafka, **client})

    def note(error: KafkaError | None, _: Message) -> None:
        codes.append(0 if error is None else error.code())

    producer.produce(topic, bytes(size_bytes), b"k", on_delivery=note)
    assert producer.flush(120) == 0
    return codes[0]


@pytest.mark.parametrize("role", ["ingress", "dead_letters"])
@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_is_refused_and_a_small_compressed_batch_is_taken(
    kafka: str, codec: str, role: str
) -> None:
    settings = Settings()
    config = own_topics(settings)[getattr(settings.topics, role)]
    assert _written(kafka, codec, 20_000_000, config) == KafkaError.MSG_SIZE_TOO_LARGE
    assert _written(kafka, codec, 100_000, config) == 0


def test_without_it_the_broker_takes_the_bomb(kafka: str) -> None:
    assert _written(kafka, "zstd", 20_000_000, {}) == 0


@pytest.fixture
def installation(kafka: str, tmp_path: Path) -> Iterator[Installation]:
    made = Installation(kafka, tmp_path, partitions=1)
    yield made
    made.close()


def test_bombs_that_clients_unpack_stop_neither_the_proxy_nor_the_audit(
    installation: Installation, tmp_path: Path
) -> None:
    target, proxy = installation.target(partitions=1), installation.proxy()
    proxy.start_ready()
    asked = [("timer-topic", target.encode())]
    records = [Outgoing(b"key", b"value", asked, 0)] * SENT
    installation.send(records)
    write_readable_bomb(installation, installation.ingress, asked)
    installation.send(records)
    installation.await_ends(2 * SENT + BATCH_RECORDS)
    write_readable_bomb(installation, target, ())
    names = {
        "bootstrap": installation.bootstrap,
        "group": f"{installation.name}.proxy",
        "ingress": installation.ingress,
        "dead-letters": installation.dead_letters,
        "outcomes": installation.outcomes,
        "settings-topic": f"{installation.name}.settings",
        "output": tmp_path / "audit",
        "driver-memory": "2g",
    }
    options = [f"--{name}={value}" for name, value in names.items()]
    program = [sys.executable, "-m", "spark_jobs.audit_delivery", "--json", *options]
    made = subprocess.run(program, capture_output=True, text=True, timeout=1_200, check=False)
    assert made.returncode == 0, made.stderr
    found = json.loads(made.stdout)
    counts = {name: n for name, n in found["verdicts"].items() if n}
    assert counts == {"delivered": 2 * SENT + BATCH_RECORDS - 1, "dead_lettered": 1}
    assert "Spark ran out of memory. Looking for records" in made.stderr
