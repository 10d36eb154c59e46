"""The records that a transaction writes. How they are sent is decided elsewhere."""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, TypeAlias

from proxy.dispatch.hops import outcome_of, successor
from proxy.dispatch.refusals import RecordRef, auxiliary_ref
from proxy.protocol.body import Delivery, Headers, IngressPartition
from proxy.protocol.headers import DUE, FIRST_ORIGIN, ORIGIN, PREFIX
from proxy.protocol.outcomes import DeadLetter, Outcome, dead_letter_headers
from proxy.protocol.proofs import HopAuthenticator
from proxy.scheduling.batch import AuxiliaryRecord, Batch, ResolvedBatch

VALUE: Final = "value"
CONTENT: Final = "key, value and headers"
"""What a dead letter leaves out if its topic does not take it."""


class OutgoingRecord(NamedTuple):
    """One record to be written; partition -1 goes by the key."""

    topic: str
    value: bytes | None
    key: bytes | None
    partition: int
    headers: Headers
    ref: RecordRef | None = None
    """The record that is refused with this one. None: the transaction fails instead."""
    is_dead_letter: bool = False


IsLetterRefused: TypeAlias = Callable[[RecordRef, OutgoingRecord, str], bool]


class OutgoingRecords:
    """Makes the records of batches. `authenticator` signs those that go to the ingress."""

    def __init__(
        self, dead_letter_topic: str, outcome_topic: str, authenticator: HopAuthenticator
    ) -> None:
        self._dead_letter_topic, self._outcome_topic = dead_letter_topic, outcome_topic
        self._authenticator = authenticator
        self.own_topics = {dead_letter_topic, outcome_topic}

    def deliveries(self, batch: ResolvedBatch) -> Iterator[OutgoingRecord]:
        """Return the records that reach their targets."""
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

    def beside_deliveries(
        self,
        batch: Batch | ResolvedBatch,
        is_letter_refused: IsLetterRefused = lambda _ref, _letter, _left_out: False,
    ) -> Iterator[OutgoingRecord]:
        """Return auxiliary records, successors of hops, dead letters and outcomes.

        A dead letter is shortened until `is_letter_refused` accepts it. The function is given the
        name of the parts that the letter lacks.
        """
        ingress = batch.ingress
        prefix = ingress.prefix
        for record in batch.auxiliary:
            yield self._auxiliary(ingress, record, auxiliary_ref(ingress, record))
        for hop in batch.hops:
            ref = prefix, hop.delivery.offset
            yield self._auxiliary(ingress, successor(ingress, hop), ref)
        for letter in batch.dead_letters:
            ref = prefix, letter.offset
            for left_out, kept in _shortened(letter):
                written = self._dead_letter(ingress, kept, ref)
                if left_out == CONTENT or not is_letter_refused(ref, written, left_out):
                    break
            yield written
            yield self._outcome(ingress, self._outcome_of(letter, left_out))
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
        self, ingress: IngressPartition, letter: DeadLetter, ref: RecordRef
    ) -> OutgoingRecord:
        headers = dead_letter_headers(letter, ingress.origin(letter.offset))
        topic = self._dead_letter_topic
        return OutgoingRecord(topic, letter.value, letter.key, -1, headers, ref, True)

    def _outcome_of(self, letter: DeadLetter, left_out: str) -> Outcome:
        detail = f"{letter.reason.code}: {letter.reason.detail}"
        if left_out:
            topic = self._dead_letter_topic
            detail += f"; its dead letter has no {left_out}: {topic} takes no record so large"
        return Outcome(letter.offset, letter.outcome, letter.due_ms, letter.ident, detail)

    def _outcome(self, ingress: IngressPartition, outcome: Outcome) -> OutgoingRecord:
        key = ingress.origin(outcome.offset).encode()
        return OutgoingRecord(self._outcome_topic, outcome.to_json(ingress), key, -1, [])


def delivery_headers(prefix: str, delivery: Delivery) -> Headers:
    """Return the record's own headers without requests, and the stamps behind them.

    `prefix` is the prefix of its ingress partition.
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


def _shortened(letter: DeadLetter) -> Iterator[tuple[str, DeadLetter]]:
    """Return the letter ever shorter, with the name of the parts left out."""
    yield "", letter
    yield VALUE, letter._replace(value=None)
    yield CONTENT, letter._replace(key=None, value=None, headers=[])
