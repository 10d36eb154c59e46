"""A second consumer long-polls a quiet ingress for the group's, on a real broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from confluent_kafka import Consumer, Producer

from proxy.config.settings import Settings
from proxy.kafka.client_settings import consumer_config, listener_config
from proxy.kafka.ingress import QUIET_S, Ingress
from tests.conftest import StartBroker
from tests.support.quiet_clients import QUIET
from tests.support.records import Outgoing, new_topic, write
from tests.support.waiting import wait_for

pytestmark = pytest.mark.integration

PARTITIONS = 3
WITHIN_S = 120


class Quiet:
    """A quiet ingress with a manual clock. With the clock stopped the first consumer fetches no
    more, so the second one finds all new records."""

    def __init__(self, bootstrap: str) -> None:
        self.topic = new_topic(bootstrap, partitions=PARTITIONS)
        kafka = {"bootstrap.servers": bootstrap, "session.timeout.ms": "120000"}
        self._settings = Settings(kafka=kafka, group_id=self.topic)
        self._now_s, self._owned = 0.0, 0
        self._listeners: list[Consumer] = []
        self.values: list[bytes | None] = []
        self.ends: dict[int, int] = {}
        member = Consumer(consumer_config(self._settings, 0))
        self.ingress = Ingress(member, self.topic, self._new_listener, lambda: self._now_s)
        self.ingress.join(self)
        self._fetch_until(lambda: self._owned == PARTITIONS, "partitions")

    def wait_long(self) -> None:
        self._now_s += QUIET_S
        self._fetch_until(lambda: self.is_waiting, "second consumer")

    @property
    def is_waiting(self) -> bool:
        return any(len(one.assignment()) == PARTITIONS for one in self._listeners)

    def await_values(self, *values: bytes) -> None:
        self._fetch_until(lambda: len(self.values) >= len(values), "records")
        assert sorted(map(bytes, filter(None, self.values))) == sorted(values)

    def await_end(self, partition: int, offset: int) -> None:
        self._fetch_until(lambda: self.ends.get(partition) == offset, "end of the partition")

    def fetch(self) -> None:
        fetched = self.ingress.fetch(0.1, is_idle=True)
        self.ends |= fetched.ends
        for records in fetched.records.values():
            self.values += [record.value() for record in records]

    def take_over(self, partitions: list[int]) -> dict[int, int]:
        self._owned += len(partitions)
        return dict.fromkeys(partitions, 0)

    def hand_over(self, partitions: list[int]) -> None:
        self._owned -= len(partitions)

    lose = hand_over

    def _fetch_until(self, condition: Callable[[], bool], what: str) -> None:
        def is_so() -> bool:
            self.fetch()
            return condition()

        wait_for(is_so, WITHIN_S, what)

    def _new_listener(self) -> Consumer:
        self._listeners.append(Consumer(listener_config(self._settings)))
        return self._listeners[-1]


@pytest.fixture
def quiet(kafka: str) -> Iterator[Quiet]:
    quiet = Quiet(kafka)
    yield quiet
    quiet.ingress.close()


def test_a_record_is_heard_and_read_by_the_group_s_consumer(kafka: str, quiet: Quiet) -> None:
    for number in range(3):
        quiet.wait_long()
        write(kafka, quiet.topic, [Outgoing(value=b"%d" % number, partition=number)])
        quiet.await_values(*(b"%d" % n for n in range(number + 1)))
        assert not quiet.is_waiting


def test_a_transaction_is_heard_once_it_is_committed(kafka: str, quiet: Quiet) -> None:
    quiet.wait_long()
    producer = Producer(
        {"bootstrap.servers": kafka, "transactional.id": f"{quiet.topic}-writer", **QUIET}
    )
    producer.init_transactions(WITHIN_S)
    for number, end in enumerate([producer.abort_transaction, producer.commit_transaction]):
        producer.begin_transaction()
        producer.produce(quiet.topic, b"%d" % number, partition=1)
        producer.flush(WITHIN_S)
        for _ in range(10):
            quiet.fetch()
        assert quiet.is_waiting
        assert quiet.values == []
        end(WITHIN_S)
        if number == 0:
            quiet.await_end(1, 2)
            quiet.wait_long()
    quiet.await_values(b"1")


def test_behind_what_was_aborted_it_waits_as_before(kafka: str, quiet: Quiet) -> None:
    quiet.wait_long()
    producer = Producer(
        {"bootstrap.servers": kafka, "transactional.id": f"{quiet.topic}-writer", **QUIET}
    )
    producer.init_transactions(WITHIN_S)
    producer.begin_transaction()
    producer.produce(quiet.topic, b"aborted", partition=1)
    producer.flush(WITHIN_S)
    producer.abort_transaction(WITHIN_S)
    quiet.await_end(1, 2)
    quiet.wait_long()
    for _ in range(20):
        quiet.fetch()
        assert quiet.is_waiting


def test_after_a_broker_was_away_all_that_comes_is_read(own_broker: StartBroker) -> None:
    broker = own_broker()
    quiet = Quiet(broker.bootstrap_servers)
    with closing(quiet.ingress):
        quiet.wait_long()
        broker.kill()
        for _ in range(10):
            quiet.fetch()
        broker.start()
        write(broker.bootstrap_servers, quiet.topic, [Outgoing(value=b"there")])
        quiet.await_values(b"there")
