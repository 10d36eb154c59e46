"""Sends records on the careful path, so that each refusal is known and affects one record."""

from collections.abc import Callable
from functools import partial
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message

from proxy.dispatch.known_targets import (
    IN_COMPANY_BYTES,
    RECORD_BATCH_BYTES,
    UNTIMELY,
    KnownTargets,
    record_batch_bytes,
)
from proxy.dispatch.refusals import INVALID, Refusals, Report
from proxy.protocol.outcomes import Rejection
from proxy.publishing.failures import NotFlushed, TransactionAborted
from proxy.scheduling.batch import OutgoingRecord, RecordRef

FLUSH_TIMEOUT_S: Final = 2.0
REFUSAL_CODES: Final = {
    KafkaError.MSG_SIZE_TOO_LARGE: "too-large",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "not-authorised",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "target-unknown",
    KafkaError.TOPIC_EXCEPTION: "target-illegal",
    KafkaError._UNKNOWN_TOPIC: "target-unknown",
    KafkaError._UNKNOWN_PARTITION: "partition-bad",
    KafkaError.INVALID_MSG: INVALID,
    KafkaError.RECORD_LIST_TOO_LARGE: "too-large",
    KafkaError.INVALID_RECORD: INVALID,
    KafkaError.POLICY_VIOLATION: INVALID,
    KafkaError.INVALID_TIMESTAMP: INVALID,
}
"""Errors that the same record causes at each try. Other errors come from broker or network."""
RAISED_CODES: Final = {
    KafkaError.MSG_SIZE_TOO_LARGE: "too-large",
    KafkaError._UNKNOWN_PARTITION: "partition-unavailable",
}
"""Errors that the client library raises in `produce`. No delivery report follows."""


class TrackedSender:
    """Sends the records of one transaction attempt with a delivery report each. Record batches stay
    below a known limit of the topic. Each record in `refusals.alone` gets its own record batch."""

    def __init__(
        self,
        produce: Callable[..., None],
        flush: Callable[[float], int],
        targets: KnownTargets,
        refusals: Refusals,
    ) -> None:
        self._produce, self._flush_producer = produce, flush
        self._targets, self._refusals = targets, refusals
        self._filled_bytes: dict[str, int] = {}
        self._raised: KafkaException | None = None

    def send(self, record: OutgoingRecord) -> None:
        """Produce one record. Its refusal is reported under its `ref`. Raises KafkaException or
        NotFlushed if the transaction cannot go on."""
        if record.ref is None:
            self._produce(record)
            return
        size_bytes = record_batch_bytes(record.key, record.value, record.headers)
        limit_bytes = self._targets.batch_limit_bytes(record.topic)
        is_alone = (record.topic, record.ref) in self._refusals.alone
        fills_bytes = size_bytes + IN_COMPANY_BYTES
        was_alone = is_alone or (limit_bytes is not None and fills_bytes > limit_bytes)
        if is_alone or not self._fits(record.topic, fills_bytes, limit_bytes):
            self._flush()
        on_delivery = partial(_report, self._refusals.reports, record, size_bytes, was_alone)
        try:
            self._produce(record, on_delivery)
        except KafkaException as raised:
            self._note_raised(record, record.ref, size_bytes, raised)
        if is_alone:
            self._flush()

    def end(self) -> None:
        """Raise KafkaException if the client library did not take a record."""
        if self._raised is not None:
            raise self._raised

    def _note_raised(
        self, record: OutgoingRecord, ref: RecordRef, size_bytes: int, raised: KafkaException
    ) -> None:
        """Go on if only this record is at fault, so that one attempt finds all such records. A
        partition may be unknown because the client library last asked the broker long ago."""
        error: KafkaError = raised.args[0]
        code = RAISED_CODES.get(error.code())
        is_partition = error.code() == KafkaError._UNKNOWN_PARTITION
        if is_partition and self._refusals.is_to_be_listed(record.topic):
            self._raised = raised
            return
        if code is None or (is_partition and record.topic not in self._targets.partitions):
            raise raised
        self._raised = raised
        what = f"{record.topic}/{record.partition}" if is_partition else "kafka: message.max.bytes"
        why = f"the proxy's client library does not send the record: {error.str()} ({what})"
        self._refusals.reports[ref] = Report(
            Rejection(code, why), record.topic, record.is_dead_letter, size_bytes, was_alone=True
        )

    def _fits(self, topic: str, fills_bytes: int, limit_bytes: int | None) -> bool:
        """Return whether a record fits into the current record batch of the topic. All partitions
        of the topic are counted as one."""
        if limit_bytes is None:
            return True
        grown_bytes = fills_bytes - RECORD_BATCH_BYTES
        filled_bytes = self._filled_bytes.get(topic, RECORD_BATCH_BYTES)
        fits = filled_bytes + grown_bytes <= limit_bytes
        before_bytes = filled_bytes if fits else RECORD_BATCH_BYTES
        self._filled_bytes[topic] = grown_bytes + before_bytes
        return fits

    def _flush(self) -> None:
        left = self._flush_producer(FLUSH_TIMEOUT_S)
        if left:
            raise NotFlushed(f"{left} records not sent after {FLUSH_TIMEOUT_S:g} s")


def _report(
    reports: dict[RecordRef, Report],
    record: OutgoingRecord,
    size_bytes: int,
    was_alone: bool,
    error: KafkaError | None,
    _: Message,
) -> None:
    """Note a report in the `reports` of its attempt, so that late reports do no harm."""
    code = None if error is None else REFUSAL_CODES.get(error.code())
    if error is not None and code is not None and record.ref is not None:
        rejection = Rejection(code, f"the broker refused the record: {error.str()}")
        reports[record.ref] = Report(
            rejection, record.topic, record.is_dead_letter, size_bytes, was_alone
        )


def judge_invalid(reports: dict[RecordRef, Report], aborted: TransactionAborted) -> None:
    """Tell invalid records from records whose time the broker refuses. Both get the same code. Only
    the transaction's error tells them apart, and only for one record batch. If this error is about
    invalid records, reports of other topics are dropped, and the next attempt shows them again."""
    invalid = {ref: one for ref, one in reports.items() if one.rejection.code == INVALID}
    topics = list(dict.fromkeys(one.topic for one in invalid.values()))
    if aborted.code == KafkaError.INVALID_TIMESTAMP:
        refused = Rejection(UNTIMELY, f"{aborted}: compare the clocks (kafka-delay-proxy check)")
        reports |= {ref: one._replace(rejection=refused) for ref, one in invalid.items()}
        return
    at_fault = next((t for t in topics if f"ProduceRequest for {t} [" in str(aborted)), None)
    for ref, one in invalid.items():
        if one.topic != (at_fault or topics[0]):
            del reports[ref]
