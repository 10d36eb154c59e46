"""Sends records so that each refusal is known and touches no other record."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from confluent_kafka import KafkaError, Message

from proxy.dispatch.known_targets import (
    IN_COMPANY_BYTES,
    RECORD_BATCH_BYTES,
    TopicRules,
    record_batch_bytes,
)
from proxy.dispatch.outgoing_records import OutgoingRecord
from proxy.dispatch.refusals import RecordRef, Refusals, Report
from proxy.publishing.errors import NotFlushed
from proxy.records.rejection import Rejection

FLUSH_TIMEOUT_S: Final = 2.0
REFUSAL_CODES: Final = {
    KafkaError.MSG_SIZE_TOO_LARGE: "too-large",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "not-authorised",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "target-unknown",
    KafkaError.TOPIC_EXCEPTION: "target-illegal",
    KafkaError._UNKNOWN_TOPIC: "target-unknown",
    KafkaError._UNKNOWN_PARTITION: "partition-bad",
    KafkaError.INVALID_MSG: "publish-failed",
    KafkaError.RECORD_LIST_TOO_LARGE: "too-large",
    KafkaError.INVALID_RECORD: "publish-failed",
    KafkaError.POLICY_VIOLATION: "publish-failed",
    KafkaError.INVALID_TIMESTAMP: "publish-failed",
}
"""A record meets these again each time; all others are the broker's or the network's."""


class TrackedSender:
    """Sends with a delivery report per record, once through a transaction's records.

    `produce` is `RecordWriter.produce`, `flush` waits for what was produced. In topics that have
    `rules` record batches are ended before they grow too large. What the refusals want alone gets
    a record batch of its own.
    """

    def __init__(
        self,
        produce: Callable[..., None],
        flush: Callable[[float], int],
        rules: Mapping[str, TopicRules],
        refusals: Refusals,
    ) -> None:
        self._produce, self._flush_producer = produce, flush
        self._rules, self._refusals = rules, refusals
        self._filled_bytes: dict[str, int] = {}

    def send(self, record: OutgoingRecord) -> None:
        """Produce one record; a refusal is reported under its `ref`.

        Raises NotFlushed when the transaction cannot go on.
        """
        if record.ref is None:
            self._produce(record)
            return
        is_alone = (record.topic, record.ref) in self._refusals.alone
        if is_alone or not self._fits(record):
            self._flush()
        on_delivery = partial(
            _report, self._refusals.reports, record.ref, record.topic, record.is_dead_letter
        )
        self._produce(record, on_delivery)
        if is_alone:
            self._flush()

    def _fits(self, record: OutgoingRecord) -> bool:
        """Whether it still fits into a record batch with what was sent there since the flush.

        It is counted by topic, as if all went into one partition.
        """
        rules = self._rules.get(record.topic)
        if rules is None:
            return True
        alone_bytes = record_batch_bytes(record.key, record.value, record.headers)
        grown_bytes = alone_bytes - RECORD_BATCH_BYTES + IN_COMPANY_BYTES
        filled_bytes = self._filled_bytes.get(record.topic, RECORD_BATCH_BYTES)
        fits = filled_bytes + grown_bytes <= rules.max_message_bytes
        before_bytes = filled_bytes if fits else RECORD_BATCH_BYTES
        self._filled_bytes[record.topic] = grown_bytes + before_bytes
        return fits

    def _flush(self) -> None:
        left = self._flush_producer(FLUSH_TIMEOUT_S)
        if left:
            raise NotFlushed(f"{left} records not sent after {FLUSH_TIMEOUT_S:g} s")


def _report(
    reports: dict[RecordRef, Report],
    ref: RecordRef,
    topic: str,
    is_dead_letter: bool,
    error: KafkaError | None,
    _: Message,
) -> None:
    """Called by the client library once the broker has taken the record, or has not."""
    code = None if error is None else REFUSAL_CODES.get(error.code())
    if error is not None and code is not None:
        rejection = Rejection(code, f"the broker refused the record: {error.str()}")
        reports[ref] = Report(rejection, topic, is_dead_letter)
