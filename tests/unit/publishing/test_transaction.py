"""States of one transaction, and the effect of each failure."""

from __future__ import annotations

import time
from concurrent.futures import Executor, Future
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, TopicPartition

from proxy.dispatch.dispatcher import OutgoingRecords
from proxy.dispatch.refusals import Refusals
from proxy.dispatch.release_control import ReleaseControl
from proxy.protocol.body import IngressPartition, packer
from proxy.protocol.policy import RetryGroup
from proxy.protocol.proofs import HopAuthenticator, HopKey
from proxy.publishing import kafka_transactions
from proxy.publishing.failures import ClientStuck, GroupMoved, PartitionsUnavailable, SessionLost
from proxy.publishing.kafka_transactions import KafkaTransactions, PendingCommit
from proxy.publishing.targets import Targets
from proxy.publishing.throttling import Throttling
from proxy.publishing.transaction import FRUITLESS_ABORTS, Publisher, Transaction
from proxy.scheduling.batch import Batch
from tests.support.simulation.executors import AtOnce, WhenAsked
from tests.support.simulation.stand_in import (
    INGRESS,
    StandInKafka,
    StandInProducer,
    kafka_error,
)
from tests.support.simulation.stand_in_admin import StandInAdmin

ENTRY = (1_000, 7, "orders", packer()((-1, b"key", b"value", [])))
BATCH = Batch(IngressPartition(INGRESS, 0), [ENTRY])
OFFSET = TopicPartition(INGRESS, 0, 8)
STAMP_MS = 1_001
GENERATION = StandInKafka().generation
ABORTED = kafka_error(KafkaError._TIMED_OUT, txn_requires_abort=True)


@pytest.fixture
def kafka() -> StandInKafka:
    found = StandInKafka()
    found.topics = {"orders": 1}
    return found


def a_publisher(
    kafka: StandInKafka,
    new_commits: Any = AtOnce,
    new_producer: Any = None,
    attempts: int = 1,
    release: ReleaseControl | None = None,
    timeout_s: float = 10.0,
    admin: StandInAdmin | None = None,
    throttling: Throttling | None = None,
) -> Publisher:
    return Publisher(
        KafkaTransactions(
            new_producer or (lambda _number: cast(Any, StandInProducer(kafka))),
            new_commits,
            lambda: None,
            timeout_s,
            throttling or Throttling(),
            lambda: STAMP_MS,
        ),
        Targets(cast(Any, admin or StandInAdmin(kafka))),
        OutgoingRecords("dead", "outcomes", HopAuthenticator(HopKey.new(), "id-1")),
        RetryGroup("", (10,), attempts),
        release or ReleaseControl(),
        Refusals(),
    )


def transactions_of(
    kafka: StandInKafka,
    new_producer: Any = None,
    new_commits: Any = AtOnce,
    heartbeat: Any = lambda: None,
) -> KafkaTransactions:
    new_producer = new_producer or (lambda _number: cast(Any, StandInProducer(kafka)))
    return KafkaTransactions(
        new_producer, new_commits, heartbeat, 10.0, Throttling(), lambda: STAMP_MS
    )


def assert_given_up(transaction: Transaction, why: type[Exception]) -> None:
    """It is not made again, whatever the broker would say now."""
    with pytest.raises(why):
        transaction.wait()


def test_transaction_is_committing_until_it_has_been_waited_for(kafka: StandInKafka) -> None:
    transaction = a_publisher(kafka, WhenAsked).publish([BATCH], [OFFSET], GENERATION, 1_000)
    assert not transaction.committed_at_s
    assert kafka.read("orders") == []
    assert transaction.wait() == [BATCH]
    assert transaction.committed_at_s
    assert [record.header("timer-origin") for record in kafka.read("orders")] == [
        b"timer.ingress/0/7"
    ]
    assert kafka.committed == {0: (8, "")}


def test_the_time_of_a_commit_is_that_of_the_broker_and_not_of_who_waits_for_it(
    kafka: StandInKafka,
) -> None:
    transaction = a_publisher(kafka).publish([BATCH], [OFFSET], GENERATION, 1_000)
    is_made_s = time.monotonic()
    transaction.wait()
    assert transaction.committed_at_s <= is_made_s < time.monotonic()


def test_transaction_waited_for_twice_is_committed_once(kafka: StandInKafka) -> None:
    transaction = a_publisher(kafka, WhenAsked).publish([BATCH], [OFFSET], GENERATION, 1_000)
    assert transaction.wait() == transaction.wait()
    assert len(kafka.read("orders")) == 1


def test_aborted_transaction_is_made_again_while_it_is_waited_for(kafka: StandInKafka) -> None:
    kafka.commit_faults = [("before", ABORTED)] * 3
    transaction = a_publisher(kafka).publish([BATCH], [OFFSET], GENERATION, 1_000)
    (written,) = transaction.wait()
    assert transaction.committed_at_s
    assert len(written.deliveries) == len(kafka.read("orders")) == 1


def test_transaction_that_aborts_again_and_again_and_teaches_nothing_ends_the_session(
    kafka: StandInKafka,
) -> None:
    kafka.commit_faults = [("before", ABORTED)] * FRUITLESS_ABORTS
    transaction = a_publisher(kafka).publish([BATCH], [OFFSET], GENERATION, 1_000)
    with pytest.raises(SessionLost, match=f"failed {FRUITLESS_ABORTS} times"):
        transaction.wait()
    assert_given_up(transaction, SessionLost)
    assert kafka.read("orders") == []


def test_transaction_of_another_generation_is_aborted_for_good(kafka: StandInKafka) -> None:
    moved = kafka_error(KafkaError.ILLEGAL_GENERATION, txn_requires_abort=True)
    kafka.commit_faults = [("before", moved)]
    transaction = a_publisher(kafka).publish([BATCH], [OFFSET], GENERATION, 1_000)
    with pytest.raises(GroupMoved):
        transaction.wait()
    assert_given_up(transaction, GroupMoved)
    assert kafka.read("orders") == []


class _NeverDone(StandInProducer):
    """Producer whose abort fails. The next producer with its id aborts the open transaction."""

    failure = kafka_error(KafkaError._TIMED_OUT, "1 message(s) remaining", retriable=True)

    def abort_transaction(self, timeout: float) -> None:
        raise self.failure


def test_abort_that_does_not_end_is_left_to_another_producer_of_the_same_id(
    kafka: StandInKafka,
) -> None:
    kafka.commit_faults = [("before", ABORTED)]
    made: list[int] = []

    def new_producer(number: int) -> Any:
        made.append(number)
        return (StandInProducer if len(made) > 1 else _NeverDone)(kafka)

    transaction = a_publisher(kafka, new_producer=new_producer).publish(
        [BATCH], [OFFSET], GENERATION, 1_000
    )
    transaction.wait()
    assert made == [0, 0]
    assert len(kafka.read("orders")) == 1


class _DoneAtTheSecond(_NeverDone):
    """Producer like librdkafka's after a refused record: only a second call purges the rest."""

    def __init__(self, kafka: StandInKafka) -> None:
        super().__init__(kafka)
        self.waited_s: list[float] = []

    def abort_transaction(self, timeout: float) -> None:
        self.waited_s.append(timeout)
        if len(self.waited_s) < 2:
            raise self.failure
        StandInProducer.abort_transaction(self, timeout)


def test_abort_that_ends_when_it_is_asked_for_again_keeps_the_producer(kafka: StandInKafka) -> None:
    kafka.commit_faults = [("before", ABORTED)]
    made: list[_DoneAtTheSecond] = []

    def new_producer(_number: int) -> Any:
        made.append(_DoneAtTheSecond(kafka))
        return made[-1]

    a_publisher(kafka, new_producer=new_producer).publish(
        [BATCH], [OFFSET], GENERATION, 1_000
    ).wait()
    assert len(kafka.read("orders")) == 1
    (producer,) = made
    assert max(producer.waited_s) < 1  # other due records are pending


def test_aborts_that_never_end_end_the_session(kafka: StandInKafka) -> None:
    kafka.commit_faults = [("before", ABORTED)] * FRUITLESS_ABORTS
    publisher = a_publisher(kafka, new_producer=lambda _number: cast(Any, _NeverDone(kafka)))
    with pytest.raises(SessionLost, match=f"failed {FRUITLESS_ABORTS} times.*remaining"):
        publisher.publish([BATCH], [OFFSET], GENERATION, 1_000).wait()
    assert kafka.read("orders") == []


def test_abort_that_cannot_be_done_ends_the_session(
    kafka: StandInKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_NeverDone, "failure", kafka_error(KafkaError._FENCED, fatal=True))
    kafka.commit_faults = [("before", ABORTED)]
    publisher = a_publisher(kafka, new_producer=lambda _number: cast(Any, _NeverDone(kafka)))
    with pytest.raises(SessionLost, match="abort failed"):
        publisher.publish([BATCH], [OFFSET], GENERATION, 1_000).wait()


class _FatalInFlush(StandInProducer):
    """Producer like confluent-kafka's on a fatal error together with a delivery report."""

    def flush(self, timeout: float) -> int:
        fatal = kafka_error(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, fatal=True)
        raise SystemError("returned a result with an exception set") from fatal


def test_a_fatal_error_beneath_a_delivery_report_ends_the_session_and_is_no_defect(
    kafka: StandInKafka,
) -> None:
    publisher = a_publisher(kafka, new_producer=lambda _number: cast(Any, _FatalInFlush(kafka)))
    transaction = publisher.publish([BATCH], [OFFSET], GENERATION, 1_000)
    with pytest.raises(SessionLost):
        transaction.wait()
    assert_given_up(transaction, SessionLost)


class _BusyAtFirst(StandInProducer):
    """Producer whose previous transaction is still ending."""

    busy = 3

    def send_offsets_to_transaction(
        self, offsets: list[TopicPartition], group_metadata: object, timeout: float
    ) -> None:
        if self.busy:
            self.busy -= 1
            raise kafka_error(KafkaError.CONCURRENT_TRANSACTIONS, retriable=True)
        super().send_offsets_to_transaction(offsets, group_metadata, timeout)


def test_end_of_the_transaction_before_is_waited_for(kafka: StandInKafka) -> None:
    publisher = a_publisher(kafka, new_producer=lambda _number: cast(Any, _BusyAtFirst(kafka)))
    publisher.publish([BATCH], [OFFSET], GENERATION, 1_000).wait()
    assert len(kafka.read("orders")) == 1


@pytest.mark.parametrize("when", ["before", "after"])
def test_what_became_of_a_commit_without_an_answer_is_not_guessed(
    kafka: StandInKafka, when: str
) -> None:
    kafka.commit_faults = [(when, kafka_error(KafkaError._TIMED_OUT, retriable=True))]
    transaction = a_publisher(kafka).publish([BATCH], [OFFSET], GENERATION, 1_000)
    with pytest.raises(SessionLost):
        transaction.wait()
    assert_given_up(transaction, SessionLost)


def test_record_too_large_for_its_topic_ends_and_the_transaction_is_committed(
    kafka: StandInKafka,
) -> None:
    kafka.max_bytes["orders"] = 4
    transaction = a_publisher(kafka).publish([BATCH], [OFFSET], GENERATION, 1_000)
    (written,) = transaction.wait()
    assert [letter.reason.code for letter in written.dead_letters] == ["too-large"]
    assert (len(kafka.read("orders")), len(kafka.read("dead"))) == (0, 1)


class Never(Executor):
    """Executor that never finishes a job."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        return Future()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_transactions, "SLOW_AFTER_S", 0.0)
    monkeypatch.setattr(kafka_transactions, "LOOK_EVERY_S", 0.0)


@pytest.mark.usefixtures("impatient")
def test_transaction_held_by_a_lost_partition_goes_on_with_another_producer_without_it(
    kafka: StandInKafka,
) -> None:
    kafka.topics["bills"] = 1
    bill = (1_000, 9, "bills", packer()((-1, b"key", b"value", [])))
    batch = Batch(IngressPartition(INGRESS, 0), [ENTRY, bill])
    made: list[int] = []
    commits = iter([Never(), AtOnce()])

    def new_producer(number: int) -> Any:
        made.append(number)
        return StandInProducer(kafka)

    publisher = a_publisher(kafka, commits.__next__, new_producer, attempts=2)
    transaction = publisher.publish([batch], [OFFSET], GENERATION, 1_000)
    kafka.leaderless = {("orders", 0)}
    (written,) = transaction.wait()

    assert made == [0, 1]
    assert [hop.detail for hop in written.hops] == [
        "partition-unavailable: orders/0 has no leader; publish attempt 1 of 2"
    ]
    assert [len(kafka.read(topic)) for topic in ("orders", "bills", INGRESS)] == [0, 1, 1]


@pytest.mark.usefixtures("impatient")
def test_commit_that_the_broker_was_asked_for_is_never_given_up(kafka: StandInKafka) -> None:
    """It may take effect. A repetition would duplicate its records."""
    asked = PendingCommit()
    asked.result = Future()
    assert asked.claim()
    asked.moved_at_s -= 1_000
    transactions = transactions_of(kafka)
    with pytest.raises(ClientStuck):
        transactions.wait_for(asked, lambda: True)


def test_commit_that_was_given_up_is_never_asked_for(kafka: StandInKafka) -> None:
    transactions = transactions_of(kafka, new_commits=WhenAsked)
    transactions.begin([OFFSET], GENERATION)
    transactions.producer.produce("orders", b"value")
    given_up = transactions.commit([OFFSET], GENERATION)
    assert given_up.claim()
    given_up.result.result()
    assert kafka.read("orders") == []


def test_transactional_id_held_by_a_transaction_that_cannot_end_is_passed_over(
    kafka: StandInKafka,
) -> None:
    class Held(StandInProducer):
        def init_transactions(self, timeout: float) -> None:
            raise kafka_error(KafkaError.CONCURRENT_TRANSACTIONS, retriable=True)

    made: list[int] = []

    def new_producer(number: int) -> Any:
        made.append(number)
        return (StandInProducer if number == 2 else Held)(kafka)

    transactions_of(kafka, new_producer)
    assert made == [0, 1, 2]
    with pytest.raises(SessionLost, match="all transactional ids are held"):
        transactions_of(kafka, lambda _number: cast(Any, Held(kafka)))


class LookedTwice(Exception):
    """A second look. One look would have been enough to give up."""


def test_each_producer_left_behind_doubles_the_patience_with_the_next(
    kafka: StandInKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_transactions, "LOOK_EVERY_S", 0.0)
    looks: list[None] = []

    def heartbeat() -> None:
        looks.append(None)
        if len(looks) > 1:
            raise LookedTwice

    transactions = transactions_of(kafka, heartbeat=heartbeat)

    def is_given_up_after(stands_s: float) -> bool:
        looks.clear()
        pending = PendingCommit()
        pending.result = Future()
        pending.moved_at_s -= stands_s
        with pytest.raises((LookedTwice, PartitionsUnavailable)) as raised:
            transactions.wait_for(pending, lambda: True)
        return raised.type is PartitionsUnavailable

    for patience_s in (1, 2, 4, 8, 8):
        assert not is_given_up_after(patience_s - 0.5)
        assert is_given_up_after(patience_s)
        transactions.replace_producer()


class _NoneOpen(StandInAdmin):
    """Admin client for use between transactions: its answer may outlast one."""

    def __init__(self, kafka: StandInKafka) -> None:
        super().__init__(kafka)
        self.producer = StandInProducer(kafka)
        self.asked: list[str] = []

    def describe_topics(self, asked: Any, **more: object) -> Any:
        self._note("topics")
        return super().describe_topics(asked, **more)

    def describe_configs(self, asked: Any, **more: object) -> Any:
        self._note("rules")
        return super().describe_configs(asked, **more)

    def _note(self, what: str) -> None:
        assert not self.producer.is_open
        self.asked.append(what)


class _ListingOutside(StandInProducer):
    def list_topics(self, topic: str, timeout: float) -> None:
        assert not self.is_open
        super().list_topics(topic, timeout)


def test_the_broker_is_asked_nothing_while_a_transaction_is_open(kafka: StandInKafka) -> None:
    """It could be asked about new partitions and maximum sizes."""
    admin = _NoneOpen(kafka)
    admin.producer = producer = _ListingOutside(kafka)
    publisher = a_publisher(kafka, new_producer=lambda _number: producer, admin=admin)
    publisher.publish([BATCH], [OFFSET], GENERATION, 1_000).wait()
    kafka.topics["orders"], kafka.max_record_bytes["orders"] = 8, 200
    records = [(5, b"value"), (9, b"value"), (-1, bytes(300))]
    entries = [
        (1_000, 8 + number, "orders", packer()((partition, b"key", value, [])))
        for number, (partition, value) in enumerate(records)
    ]
    batch = Batch(IngressPartition(INGRESS, 0), entries)
    (written,) = publisher.publish([batch], [OFFSET], GENERATION, 7_000).wait()
    assert len(kafka.read("orders")) == 2
    assert [letter.reason.code for letter in written.dead_letters] == ["partition-bad", "too-large"]
    assert admin.asked.count("topics") >= 2
    assert "rules" in admin.asked


def test_records_that_do_not_arrive_in_time_are_written_by_another_producer(
    kafka: StandInKafka,
) -> None:
    """Otherwise the broker would abort the transaction, and the session would be lost."""

    class Slow(StandInProducer):
        def flush(self, timeout: float) -> int:
            return 1

    made: list[int] = []

    def new_producer(number: int) -> Any:
        made.append(number)
        return (Slow if len(made) == 1 else StandInProducer)(kafka)

    publisher = a_publisher(kafka, new_producer=new_producer, timeout_s=0.05)
    publisher.publish([BATCH], [OFFSET], GENERATION, 1_000).wait()
    assert made == [0, 0]
    assert len(kafka.read("orders")) == 1


def test_records_carry_the_time_of_the_clock_that_is_handed_in(kafka: StandInKafka) -> None:
    a_publisher(kafka).publish([BATCH], [OFFSET], GENERATION, 1_000).wait()
    assert [record.stamp_ms for record in kafka.read("orders")] == [STAMP_MS]
