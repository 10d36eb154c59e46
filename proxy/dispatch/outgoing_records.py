"""What a transaction writes, as one stream of records; how they are sent is no business of it."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from proxy.dispatch.hops import outcome_of, successor
from proxy.dispatch.known_targets import KnownTargets, record_batch_bytes
from proxy.dispatch.refusals import RecordRef, Refusals, auxiliary_ref
from proxy.protocol.body import Delivery, Headers, IngressPartition
from proxy.protocol.headers import DUE, FIRST_ORIGIN, ORIGIN, PREFIX
from proxy.protocol.outcomes import DeadLetter, Outcome, dead_letter_headers
from proxy.protocol.proofs import HopAuthenticator
from proxy.scheduling.batch import AuxiliaryRecord, Batch, ResolvedBatch

VALUE: Final = "value"
CONTENT: Final = "key, value and headers"
"""What a dead letter lacks whose topic does not take it."""


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
    """The records that are written for the batches of one transaction.

    What goes to the ingress is signed by `authenticator`.
    """

    def __init__(
        self,
        dead_letter_topic: str,
        outcome_topic: str,
        targets: KnownTargets,
        refusals: Refusals,
        authenticator: HopAuthenticator,
    ) -> None:
        self._dead_letter_topic, self._outcome_topic = dead_letter_topic, outcome_topic
        self._targets, self._refusals = targets, refusals
        self._authenticator = authenticator

    def deliveries(self, batch: ResolvedBatch) -> Iterator[OutgoingRecord]:
        """The records that reach their targets."""
        prefix = batch.ingress.prefix
        for delivery in batch.deliveries:
            yield OutgoingRecord(
                delivery.target,
                delivery.value,
                delivery.key,
                delivery.partition,
                delivery_headers(prefix, delivery),
                (prefix, delivery.offset),
            )

    def beside_deliveries(self, batch: Batch | ResolvedBatch) -> Iterator[OutgoingRecord]:
        """Everything else: auxiliary records, successors of hops, dead letters, outcomes."""
        ingress = batch.ingress
        prefix = ingress.prefix
        for record in batch.auxiliary:
            yield self._auxiliary(ingress, record, auxiliary_ref(ingress, record))
        for hop in batch.hops:
            ref = prefix, hop.delivery.offset
            yield self._auxiliary(ingress, successor(ingress, hop), ref)
        for letter in batch.dead_letters:
            yield from self._dead_letter(ingress, letter)
        for outcome in batch.outcomes:
            yield self._outcome(ingress, outcome)
        for hop in batch.hops:
            yield self._outcome(ingress, outcome_of(hop))

    def _auxiliary(
        self, ingress: IngressPartition, record: AuxiliaryRecord, ref: RecordRef
    ) -> OutgoingRecord:
        _, topic, partition, key, value, headers, _ = record
        if topic == ingress.topic:
            headers = self._authenticator.signed(partition, key, value, headers)
        return OutgoingRecord(topic, value, key, partition, headers, ref)

    def _dead_letter(
        self, ingress: IngressPartition, letter: DeadLetter
    ) -> Iterator[OutgoingRecord]:
        """As much of it as its topic takes, and its outcome, which says what was left out."""
        topic, ref = self._dead_letter_topic, (ingress.prefix, letter.offset)
        origin = ingress.origin(letter.offset)
        left_out, kept = "", letter
        for left_out, kept in _shrunk(letter):
            headers = dead_letter_headers(kept, origin)
            if not self._is_refused(ref, left_out, kept, headers):
                break
        yield OutgoingRecord(topic, kept.value, kept.key, -1, headers, ref, is_dead_letter=True)
        detail = f"{letter.reason.code}: {letter.reason.detail}"
        if left_out:
            detail += f"; its dead letter has no {left_out}: {topic} takes no record so large"
        outcome = Outcome(letter.offset, letter.outcome, letter.due_ms, letter.ident, detail)
        yield self._outcome(ingress, outcome)

    def _is_refused(
        self, ref: RecordRef, left_out: str, kept: DeadLetter, headers: Headers
    ) -> bool:
        """Whether this very transaction was refused for the size of such a letter."""
        refusals, topic = self._refusals, self._dead_letter_topic
        if left_out == CONTENT:
            return False
        if ref in refusals.bare or (not left_out and ref in refusals.without_value):
            return True
        size_bytes = record_batch_bytes(kept.key, kept.value, headers)
        return topic in refusals.limited and (
            refusals.is_too_large(self._targets, topic, size_bytes)
            or bool(self._targets.exceeding_bytes(topic, kept.key, kept.value, headers))
        )

    def _outcome(self, ingress: IngressPartition, outcome: Outcome) -> OutgoingRecord:
        key = ingress.origin(outcome.offset).encode()
        return OutgoingRecord(self._outcome_topic, outcome.to_json(ingress), key, -1, [])


def delivery_headers(prefix: str, delivery: Delivery) -> Headers:
    """The headers of a delivery: the record's own without requests, and the stamps.

    `prefix` is that of its ingress partition.
    """
    headers: Headers = []
    first = None
    for header in delivery.headers:
        if header[0][:6] != PREFIX:
            headers.append(header)
        elif header[0] == FIRST_ORIGIN:
            first = header[1]
    headers.append((ORIGIN, f"{prefix}{delivery.offset}".encode()))
    headers.append((DUE, str(delivery.due_ms).encode()))
    if first is not None:
        headers.append((FIRST_ORIGIN, first))
    return headers


def _shrunk(letter: DeadLetter) -> Iterator[tuple[str, DeadLetter]]:
    """What is left out, and the letter without it."""
    yield "", letter
    yield VALUE, letter._replace(value=None)
    yield CONTENT, letter._replace(key=None, value=None, headers=[])
