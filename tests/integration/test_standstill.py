"""What a failed wait for ends says: where a transaction is open, and which records lack an end."""

import uuid
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.support.installation.installation import Installation
from tests.support.records import Outgoing

pytestmark = pytest.mark.integration


def test_open_transaction_and_records_without_an_end_are_named(kafka: str, tmp_path: Path) -> None:
    installation = Installation(kafka, tmp_path)
    target = installation.target()
    installation.send([Outgoing(b"k", b"v", [("timer-topic", target.encode())], partition=1)])
    producer = Producer({"bootstrap.servers": kafka, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(target, b"v")
    producer.flush(30)
    try:
        with pytest.raises(AssertionError) as failed:
            installation.await_ends(1, timeout_s=1)
    finally:
        producer.abort_transaction(30)
        installation.close()
    assert f"{target}/0: a transaction is open from 0 of 1" in str(failed.value)
    assert f"first {installation.ingress}/1/0" in str(failed.value)
