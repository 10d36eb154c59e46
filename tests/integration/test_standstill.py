"""A failed wait for ends names open transactions and the records without an end."""

from pathlib import Path

import pytest

from tests.support.installation.committing import open_transaction
from tests.support.installation.installation import Installation
from tests.support.records import Outgoing

pytestmark = pytest.mark.integration

WITHIN_S = 180


def test_open_transaction_and_records_without_an_end_are_named(kafka: str, tmp_path: Path) -> None:
    installation = Installation(kafka, tmp_path)
    target = installation.target()
    installation.send([Outgoing(b"k", b"v", [("timer-topic", target.encode())], partition=1)])
    producer = open_transaction(kafka)
    producer.produce(target, b"v")
    assert producer.flush(WITHIN_S) == 0
    try:
        with pytest.raises(AssertionError) as failed:
            installation.await_ends(1, timeout_s=1)
    finally:
        producer.abort_transaction(WITHIN_S)
        installation.close()
    assert f"{target}/0: a transaction is open from 0 of 1" in str(failed.value)
    assert f"first {installation.ingress}/1/0" in str(failed.value)
