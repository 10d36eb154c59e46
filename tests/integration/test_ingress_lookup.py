"""Single records are read back from a real broker, which may be away at times."""

import time
from contextlib import closing

import pytest
from confluent_kafka import Consumer, KafkaException

from proxy.config.settings import Settings
from proxy.kafka.client_settings import lookup_config
from proxy.kafka.reader import SILENT_AT_MOST_S, IngressLookup
from tests.conftest import StartBroker
from tests.support.installation.committing import open_transaction
from tests.support.installation.installation import Installation
from tests.support.installation.unreadable_batch import write_unreadable_batch
from tests.support.records import Outgoing, await_ends, new_topic, write

pytestmark = pytest.mark.integration

RECORDS = 3_000
GAP = 50
FAR_APART = range(5, RECORDS, 4 * GAP)


def _found(lookup: IngressLookup, *offsets: int) -> dict[int, bytes | None]:
    return {offset: m.value() for offset, m in lookup.read(0, offsets, GAP).items()}


def test_a_broker_that_was_away_still_has_every_record(own_broker: StartBroker) -> None:
    broker = own_broker()
    topic = new_topic(broker.bootstrap_servers)
    write(broker.bootstrap_servers, topic, [Outgoing(value=b"%d" % n) for n in range(RECORDS)])
    config = lookup_config(Settings(kafka={"bootstrap.servers": broker.bootstrap_servers}))
    asked = [0, 1, 7, 49, 1_000, 1_051, 1_052, RECORDS - 1]
    answer = {offset: b"%d" % offset for offset in asked}
    with closing(IngressLookup(lambda: Consumer(config), topic, lambda: None)) as lookup:
        assert _found(lookup, *asked) == answer
        broker.kill()
        started = time.monotonic()
        with pytest.raises(KafkaException):
            _found(lookup, *FAR_APART)
        took_s = time.monotonic() - started
        assert SILENT_AT_MOST_S < took_s < SILENT_AT_MOST_S * len(FAR_APART) / 3, "one wait for all"
        broker.start()
        assert _found(lookup, *asked) == answer
        with pytest.raises(KafkaException):
            _found(lookup, RECORDS + 1_000)


def test_an_offset_without_a_record_before_a_batch_that_nobody_can_read_is_passed_over(
    installation: Installation,
) -> None:
    producer = open_transaction(installation.bootstrap)
    producer.produce(installation.ingress, b"0", partition=0)
    producer.commit_transaction()
    await_ends(installation.bootstrap, installation.ingress, {0: 2, 1: 0})
    write_unreadable_batch(installation)
    config = lookup_config(Settings(kafka={"bootstrap.servers": installation.bootstrap}))
    topic, end_of_transaction, unreadable = installation.ingress, 1, 2
    with closing(IngressLookup(lambda: Consumer(config), topic, lambda: None)) as lookup:
        assert _found(lookup, end_of_transaction) == {}
        assert _found(lookup, 0, end_of_transaction) == {0: b"0"}
        with pytest.raises(KafkaException):
            _found(lookup, unreadable)
