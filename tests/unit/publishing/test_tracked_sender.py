"""Records sent with delivery reports: shared record batches and known refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from proxy.dispatch.known_targets import KnownTargets, TopicRules, record_batch_bytes
from proxy.dispatch.refusals import Refusals
from proxy.publishing.failures import NotFlushed
from proxy.publishing.tracked_sender import TrackedSender
from proxy.scheduling.batch import OutgoingRecord
from tests.support.simulation.stand_in import kafka_error

ORIGIN = "timer.ingress/0/"


def a_record(offset: int, size_bytes: int = 1) -> OutgoingRecord:
    return OutgoingRecord("orders", bytes(size_bytes), b"key", -1, [], (ORIGIN, offset))


class Sending:
    """A sender and its results: groups of records between flushes."""

    def __init__(self, rules: dict[str, TopicRules] | None = None, unsent: int = 0) -> None:
        self.refusals = Refusals()
        self.groups: list[list[OutgoingRecord]] = [[]]
        self.reports: list[Callable[..., None] | None] = []
        self.raised: dict[int, KafkaException] = {}
        self._unsent = unsent
        self.targets = KnownTargets()
        self.targets.rules = rules or {}
        self._sender = TrackedSender(self._produce, self._flush, self.targets, self.refusals)

    def send(self, *records: OutgoingRecord) -> list[int]:
        for record in records:
            self._sender.send(record)
        return [len(group) for group in self.groups if group]

    def end(self) -> None:
        self._sender.end()

    def _produce(self, record: OutgoingRecord, on_delivery: Any = None) -> None:
        if record.ref is not None and record.ref[1] in self.raised:
            raise self.raised[record.ref[1]]
        self.groups[-1].append(record)
        self.reports.append(on_delivery)

    def _flush(self, timeout_s: float) -> int:
        self.groups.append([])
        return self._unsent


def test_records_share_record_batches_until_their_topic_has_rules() -> None:
    assert Sending().send(*map(a_record, range(4))) == [4]


def test_record_batches_end_before_they_are_larger_than_the_topic_takes() -> None:
    alone_bytes = record_batch_bytes(b"key", bytes(100), [])
    rules = {"orders": TopicRules(2 * alone_bytes, needs_key=False)}
    assert Sending(rules).send(*(a_record(offset, 100) for offset in range(4))) == [2, 2]


def test_record_that_may_be_at_fault_goes_alone() -> None:
    sending = Sending()
    sending.refusals.alone.add(("orders", (ORIGIN, 1)))
    assert sending.send(*map(a_record, range(4))) == [1, 1, 2]


def test_refusal_is_reported_of_its_record_and_a_failure_of_the_broker_of_none() -> None:
    sending = Sending()
    sending.send(a_record(1), a_record(2), a_record(3))
    codes = [KafkaError.MSG_SIZE_TOO_LARGE, KafkaError._TIMED_OUT]
    for report, error in zip(sending.reports, [*map(KafkaError, codes), None], strict=True):
        assert report is not None
        report(error, None)
    assert list(sending.refusals.reports) == [(ORIGIN, 1)]
    told = sending.refusals.reports[ORIGIN, 1]
    assert (told.rejection.code, told.was_alone) == ("too-large", False)


def test_record_with_which_no_other_fits_into_a_record_batch_is_reported_as_alone() -> None:
    size_bytes = record_batch_bytes(b"key", bytes(100), [])
    sending = Sending({"orders": TopicRules(size_bytes, needs_key=False)})
    assert sending.send(a_record(1, 100), a_record(2, 100)) == [1, 1]
    for report in sending.reports:
        assert report is not None
        report(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), None)
    found = sending.refusals.reports.values()
    assert [(report.size_bytes, report.was_alone) for report in found] == [(size_bytes, True)] * 2


def test_outcome_is_sent_without_a_report() -> None:
    sending = Sending()
    sending.send(OutgoingRecord("outcomes", b"{}", b"key", -1, []))
    assert sending.reports == [None]


def test_broker_that_does_not_take_a_record_sent_alone_ends_the_attempt() -> None:
    sending = Sending(unsent=3)
    sending.refusals.alone.add(("orders", (ORIGIN, 1)))
    with pytest.raises(NotFlushed, match="3 records not sent"):
        sending.send(a_record(1))


def test_record_that_the_client_library_refuses_by_itself_is_known_and_nothing_is_committed() -> (
    None
):
    sending = Sending()
    sending.raised = dict.fromkeys((1, 3), kafka_error(KafkaError.MSG_SIZE_TOO_LARGE))
    sending.send(*map(a_record, range(5)))
    assert [record.ref[1] for record in sending.groups[0] if record.ref] == [0, 2, 4]
    reports = sending.refusals.reports
    assert {ref[1]: (told.rejection.code, told.was_alone) for ref, told in reports.items()} == {
        1: ("too-large", True),
        3: ("too-large", True),
    }
    with pytest.raises(KafkaException):
        sending.end()


def test_any_other_error_as_a_record_is_produced_is_of_the_transaction() -> None:
    sending = Sending()
    sending.raised = {1: kafka_error(KafkaError._STATE)}
    with pytest.raises(KafkaException):
        sending.send(a_record(1))
    assert sending.refusals.reports == {}
    sending.end()


def test_partition_that_the_client_library_does_not_know_is_asked_for_once() -> None:
    """The query may outlast a transaction, so it precedes the next attempt."""
    sending = Sending()
    sending.targets.learn("orders", 8, None)
    sending.raised = dict.fromkeys((1, 3), kafka_error(KafkaError._UNKNOWN_PARTITION))
    sending.send(*map(a_record, range(5)))
    with pytest.raises(KafkaException):
        sending.end()
    assert sending.refusals.reports == {}
    assert sending.refusals.learn(sending.targets) == 1
    assert sending.refusals.take_unlisted() == {"orders"}
    sending.send(*map(a_record, range(5)))
    assert {ref[1]: told.rejection.code for ref, told in sending.refusals.reports.items()} == {
        1: "partition-unavailable",
        3: "partition-unavailable",
    }


def test_partition_of_no_target_that_the_client_library_does_not_know_fails_the_transaction() -> (
    None
):
    """A successor would become a dead letter, although the ingress has the partition."""
    sending = Sending()
    sending.raised = {1: kafka_error(KafkaError._UNKNOWN_PARTITION)}
    sending.send(a_record(1))
    assert sending.refusals.take_unlisted() == {"orders"}
    with pytest.raises(KafkaException):
        sending.send(a_record(1))
