"""The tests' cluster survives the loss of any node, as three production brokers do."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from proxy.kafka.log_ranges import LogRange, log_ranges
from proxy.publishing.kafka_transactions import CommitThread
from tests.support.installation.cluster import Cluster, running_cluster
from tests.support.quiet_clients import QUIET, admin_client
from tests.support.records import Outgoing, read_to_end, write
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.faults]

ANSWER_S = 180
GIVEN_UP_AFTER_S = 90
TRANSACTION_TIMEOUT_MS = 2 * ANSWER_S * 1000
"""Well above the duration of a step. At its end the cluster aborts and fences the producer."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


def _values(cluster: Cluster, topic: str, at_least: int) -> list[bytes | None]:
    return [r.value for r in read_to_end(cluster.bootstrap_servers, topic, at_least)]


def _write(cluster: Cluster, topic: str, value: bytes) -> None:
    write(cluster.bootstrap_servers, topic, [Outgoing(b"k", value)])


def test_writing_goes_on_when_the_leader_is_killed_and_it_comes_back(cluster: Cluster) -> None:
    cluster.create_topic("killed")
    _write(cluster, "killed", b"before")
    leader = cluster.await_leader("killed")

    cluster.kill(leader)
    _write(cluster, "killed", b"meanwhile")
    cluster.await_leader("killed", but=leader)
    cluster.start(leader)
    cluster.await_whole()
    _write(cluster, "killed", b"after")

    assert _values(cluster, "killed", 3) == [b"before", b"meanwhile", b"after"]


def test_frozen_leader_is_given_up_and_follows_when_it_goes_on(cluster: Cluster) -> None:
    cluster.create_topic("frozen")
    leader = cluster.await_leader("frozen")

    cluster.freeze(leader)
    try:
        cluster.await_leader("frozen", but=leader)
        _write(cluster, "frozen", b"meanwhile")
    finally:
        cluster.thaw(leader)
    cluster.await_whole()

    assert _values(cluster, "frozen", 1) == [b"meanwhile"]


def test_offsets_asked_for_while_a_leader_is_away_are_right_or_an_error(cluster: Cluster) -> None:
    cluster.create_topic("asked", 6)
    ids = range(6)
    for number in ids:
        cluster.await_leader("asked", number)
    _write(cluster, "asked", b"one")
    admin = admin_client(cluster.bootstrap_servers)
    killed = cluster.leader("asked")
    before = log_ranges(admin, "asked", ids)

    cluster.kill(killed)
    seen = [_asked(admin, ids)]
    while cluster.leader("asked") in {killed, -1}:
        seen.append(_asked(admin, ids))
    cluster.start(killed)
    cluster.await_whole()

    assert all(ranges is None or ranges == before for ranges in seen)
    assert log_ranges(admin, "asked", ids) == before


def _asked(admin: AdminClient, ids: Sequence[int]) -> dict[int, LogRange] | None:
    with suppress(KafkaException):
        return log_ranges(admin, "asked", ids)
    return None


def test_node_that_is_stopped_hands_over_what_it_leads(cluster: Cluster) -> None:
    cluster.create_topic("stopped")
    leader = cluster.await_leader("stopped")

    cluster.stop(leader)

    cluster.await_leader("stopped", but=leader)
    cluster.start(leader)
    cluster.await_whole()


def test_transactions_go_on_when_their_coordinators_are_killed(cluster: Cluster) -> None:
    cluster.create_topic("transacted")
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, **QUIET, "group.id": "g"})
    producer = _transactional(cluster)
    coordinators = ((cluster.transaction_coordinator, "some-id"), (cluster.group_coordinator, "g"))

    for number, (coordinator, name) in enumerate(coordinators):
        killed = coordinator(name)
        producer.begin_transaction()
        producer.produce("transacted", str(number).encode())
        cluster.kill(killed)
        producer = _committed(cluster, producer, consumer, number)
        wait_for(partial(_is_other, coordinator, name, killed), ANSWER_S, "another coordinator")
        cluster.start(killed)
        cluster.await_whole()

    consumer.close()
    assert _values(cluster, "transacted", 2) == [b"0", b"1"]


def _transactional(cluster: Cluster) -> Producer:
    settings = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "transactional.id": "some-id",
        "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
    }
    producer = Producer({**settings, **QUIET})
    producer.init_transactions(ANSWER_S)
    return producer


def _committed(cluster: Cluster, producer: Producer, consumer: Consumer, number: int) -> Producer:
    """Commit the open transaction and return the producer to continue with.

    A fenced or hanging producer gets a successor. The successor repeats the transaction unless it
    was committed. On a busy machine Kafka has fenced producers twice for no known reason. Offset
    commits may also hang for ever (librdkafka issues 5456 and 5511).
    """
    try:
        CommitThread().submit(_commit, producer, consumer, number).result(GIVEN_UP_AFTER_S)
    except (KafkaException, TimeoutError) as raised:
        if isinstance(raised, KafkaException) and raised.args[0].code() != KafkaError._FENCED:
            raise
        print(f"a successor: {raised!r}")
        producer, value = _transactional(cluster), str(number).encode()
        if value not in _values(cluster, "transacted", number):
            producer.begin_transaction()
            producer.produce("transacted", value)
            _commit(producer, consumer, number)
    return producer


def _commit(producer: Producer, consumer: Consumer, number: int) -> None:
    offsets = [TopicPartition("transacted", 0, number)]
    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), ANSWER_S)
    producer.commit_transaction(ANSWER_S)


def _is_other(coordinator: Callable[[str], int], name: str, than: int) -> bool:
    return coordinator(name) != than


def test_coordinators_are_those_that_kafka_names(cluster: Cluster) -> None:
    admin = admin_client(cluster.bootstrap_servers)
    for group in (f"group-{number}" for number in range(12)):
        described = admin.describe_consumer_groups([group])[group].result(ANSWER_S)
        assert described.coordinator.id == cluster.group_coordinator(group)


def test_clients_are_sent_to_the_advertised_address_and_brokers_are_not(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    try:
        for number in cluster.numbers:
            cluster.advertise(number, f"localhost:{cluster.port(number)}")
        cluster.start_all()
        found = admin_client(cluster.bootstrap_servers).list_topics(timeout=ANSWER_S)
        assert {broker.host for broker in found.brokers.values()} == {"localhost"}
        direct = admin_client(cluster.direct_servers).list_topics(timeout=ANSWER_S)
        assert {broker.host for broker in direct.brokers.values()} == {"127.0.0.1"}
    finally:
        cluster.kill_all()
