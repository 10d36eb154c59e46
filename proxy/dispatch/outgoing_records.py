"""What a transaction writes, as one stream of records; how they are sent is no business of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from proxy.dispatch.hops import outcome_of, successor
from proxy.dispatch.known_targets import KnownTargets
from proxy.dispatch.refusals import RecordRef, Refusals, auxiliary_ref
from proxy.records.body import Delivery, Headers
from proxy.records.headers import DUE, FIRST_ORIGIN, ORIGIN, PREFIX
from proxy.records.message import DeadLetter, dead_letter_headers
from proxy.scheduling.transaction_buffer import Batch, Note, Opened, Outcome


class OutgoingRecord(NamedTuple):
    """One record to be written; partition -1 goes by the key.

    `ref`: the record that is refused when this one is; None: none is, the transaction fails.
    """

    topic: str
    value: bytes | None
    key: bytes | None
    partition: int
    headers: Headers
    ref: RecordRef | None = None
    is_dead_letter: bool = False


class OutgoingRecords:
    """The records that are written for the batches of one transaction."""

    def __init__(
        self, dead_letter_topic: str, outcome_topic: str, targets: KnownTargets, refusals: Refusals
    ) -> None:
        self._dead_letter_topic, self._outcome_topic = dead_letter_topic, outcome_topic
        self._targets, self._refusals = targets, refusals

    def deliveries(self, batch: Opened) -> Iterator[OutgoingRecord]:
        """The records that reach their targets."""
        origin = batch.origin
        for delivery in batch.deliveries:
            yield OutgoingRecord(
                delivery.target,
                delivery.value,
                delivery.key,
                delivery.partition,
                delivery_headers(origin, delivery),
                (origin, delivery.offset),
            )

    def beside_deliveries(self, batch: Batch | Opened) -> Iterator[OutgoingRecord]:
        """Everything else: auxiliary records, successors of hops, dead letters, outcomes."""
        origin = batch.origin
        for note in batch.notes:
            yield _auxiliary(note, auxiliary_ref(origin, note))
        for hop in batch.hops:
            yield _auxiliary(successor(origin, hop), (origin, hop.delivery.offset))
        for letter in batch.dead_letters:
            yield self._dead_letter(origin, letter)
            yield self._outcome(origin, _outcome_of_letter(letter))
        for outcome in batch.outcomes:
            yield self._outcome(origin, outcome)
        for hop in batch.hops:
            yield self._outcome(origin, outcome_of(hop))

    def _dead_letter(self, origin: str, letter: DeadLetter) -> OutgoingRecord:
        """Without the value when the topic cannot take it."""
        topic, ref = self._dead_letter_topic, (origin, letter.offset)
        headers = dead_letter_headers(letter, f"{origin}{letter.offset}")
        exceeds = self._targets.exceeding_bytes(topic, letter.key, letter.value, headers)
        value = None if exceeds or ref in self._refusals.without_value else letter.value
        return OutgoingRecord(topic, value, letter.key, -1, headers, ref, is_dead_letter=True)

    def _outcome(self, origin: str, outcome: Outcome) -> OutgoingRecord:
        key = f"{origin}{outcome.offset}".encode()
        return OutgoingRecord(self._outcome_topic, outcome.to_json(origin), key, -1, [])


def delivery_headers(origin: str, delivery: Delivery) -> Headers:
    """The headers of a delivery: the record's own without requests, and the stamps."""
    headers: Headers = []
    first = None
    for header in delivery.headers:
        if header[0][:6] != PREFIX:
            headers.append(header)
        elif header[0] == FIRST_ORIGIN:
            first = header[1]
    headers.append((ORIGIN, f"{origin}{delivery.offset}".encode()))
    headers.append((DUE, str(delivery.due_ms).encode()))
    if first is not None:
        headers.append((FIRST_ORIGIN, first))
    return headers


def _auxiliary(note: Note, ref: RecordRef) -> OutgoingRecord:
    return OutgoingRecord(note.topic, note.value, note.key, note.partition, note.headers, ref)


def _outcome_of_letter(letter: DeadLetter) -> Outcome:
    detail = f"{letter.reason.code}: {letter.reason.detail}"
    return Outcome(letter.offset, letter.outcome, letter.due_ms, letter.ident, detail)
