"""Decisions about due records, and the records that a transaction writes for them.

A decision that depends on the broker is made when the record fires, not at ingestion
(docs/exactly-once.md, rules 3 and 9).
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import structlog

from proxy.dispatch.hops import is_move, outcome_of, successor
from proxy.dispatch.known_targets import UNTIMELY, KnownTargets, record_batch_bytes
from proxy.dispatch.refusals import BY_RECORD_BATCH, Refusals
from proxy.dispatch.release_control import Disposition, ReleaseControl
from proxy.protocol.body import Delivery, Headers, IngressPartition, delivery_of
from proxy.protocol.headers import DUE, FIRST_ORIGIN, HOP_ATTEMPT, ORIGIN, PREFIX
from proxy.protocol.outcomes import (
    REQUEUED,
    ROLLED,
    DeadLetter,
    Outcome,
    Rejection,
    dead_letter_headers,
    dead_letter_of,
    unforeseen,
)
from proxy.protocol.policy import RetryGroup
from proxy.protocol.proofs import HopAuthenticator
from proxy.scheduling.batch import Batch, Hop, OutgoingRecord, RecordRef
from storage.store import Entry

LATEST_UNTIMELY_MS: Final = 300_000
"""A record with a refused timestamp waits for as long as it is overdue, but at most this long."""
TRANSIENT: Final = frozenset({"target-unknown", "not-authorised", "partition-unavailable"})
"""Codes of refusals that may end by themselves or that an operator can mend. The refused records
are tried again at the retry levels."""

log = structlog.get_logger(__name__)


class Dispatcher:
    """Decides on the records of one transaction, also when the transaction is repeated."""

    def __init__(
        self,
        targets: KnownTargets,
        refusals: Refusals,
        retry: RetryGroup,
        release: ReleaseControl,
        now_ms: int,
    ) -> None:
        self._targets, self._refusals = targets, refusals
        self._retry, self._release, self._now_ms = retry, release, now_ms
        self.doubted: set[str] = set()
        """Targets for which a record names a partition beyond the known ones."""
        self._released: dict[RecordRef, Disposition] = {}
        self._refused_before_hop: dict[RecordRef, Rejection | None] = {}
        self._put_off_ms: dict[RecordRef, int] = {}

    def resolve(self, batch: Batch[Entry]) -> Batch[Delivery]:
        prefix = batch.ingress.prefix
        deliveries: list[Delivery] = []
        hops: list[Hop] = []
        dead: list[DeadLetter] = []
        outcomes = list(batch.outcomes)
        for delivery in map(delivery_of, batch.deliveries):
            ref = prefix, delivery.offset
            try:
                end = self._decide(prefix, delivery)
            except Exception as error:  # noqa: BLE001 (one record must not stop the others)
                end = unforeseen(error)
            if isinstance(end, Hop):
                end = self._unless_refused(batch.ingress, end)
            if end is None:
                deliveries.append(self._placed(delivery))
                self._refused_before_hop.pop(ref, None)
            elif isinstance(end, Hop):
                hops.append(end)
                self._refused_before_hop.setdefault(ref, self._refusals.refused.get(ref))
            elif isinstance(end, Outcome):
                outcomes.append(end)
            else:
                dead.append(dead_letter_of(delivery, end))
        auxiliary = [one for one in batch.auxiliary if self._can_be_written(batch.ingress, one)]
        dead_letters = [*batch.dead_letters, *dead]
        return Batch(batch.ingress, deliveries, dead_letters, outcomes, auxiliary, hops)

    def is_letter_refused(self, ref: RecordRef, letter: OutgoingRecord, left_out: str) -> bool:
        """Return whether the topic is known to refuse the letter. `left_out` names the parts that
        the letter lacks."""
        refusals, topic = self._refusals, letter.topic
        if ref in refusals.bare or (not left_out and ref in refusals.without_value):
            return True
        return topic in refusals.limited and self._is_too_large(
            topic, letter.key, letter.value, letter.headers
        )

    def _decide(self, prefix: str, delivery: Delivery) -> Disposition:
        ref = prefix, delivery.offset
        refused = self._refusals.refused.get(ref)
        if refused is not None:
            was_hop_refused = self._refused_before_hop.get(ref, refused) is not refused
            return refused if was_hop_refused else self._requeue(delivery, refused)
        rolls = delivery.fires_ms < delivery.wanted_ms
        if ref not in self._released:
            self._released[ref] = (
                self._rolled(delivery) if rolls else self._release.decide(delivery, self._now_ms)
            )
        if (end := self._released[ref]) is not None:
            return end
        refusal = self._targets.refusal_at(delivery.target, delivery.partition, delivery.key)
        if refusal is not None:
            if refusal.code == "partition-bad":
                self.doubted.add(delivery.target)
            return self._requeue(delivery, refusal)
        return self._against_rules(prefix, delivery) or self._put_off(prefix, delivery)

    def _rolled(self, delivery: Delivery) -> Hop:
        not_before = self._release.not_before(delivery, self._now_ms)
        if not_before is None:
            return Hop(delivery, ROLLED)
        not_before_ms, resumed_ms = not_before
        return Hop(delivery, ROLLED, "", not_before_ms, resumed_ms=resumed_ms)

    def _placed(self, delivery: Delivery) -> Delivery:
        """Choose a partition that can be written to, if the record may go to any."""
        target, named, offset = delivery.target, delivery.partition, delivery.offset
        partition = self._targets.partition_at(target, named, delivery.key, offset)
        return delivery if partition == named else delivery._replace(partition=partition)

    def _requeue(self, delivery: Delivery, reason: Rejection) -> Hop | Rejection:
        """Return a hop to the next retry level, or the final rejection. A refused timestamp means
        that a clock is wrong, so the refusal does not count as a failed publish attempt."""
        if reason.code == UNTIMELY:
            overdue_ms = min(self._now_ms - delivery.due_ms, LATEST_UNTIMELY_MS)
            again_ms = self._now_ms + max(self._retry.delays_ms[0], overdue_ms)
            return Hop(delivery, REQUEUED, f"{reason.code}: {reason.detail}", again_ms)
        failed = int(delivery.header(HOP_ATTEMPT) or 0) + 1
        if reason.code not in TRANSIENT or failed >= self._retry.max_attempts:
            return reason
        delays_ms = self._retry.delays_ms
        again_ms = self._now_ms + delays_ms[min(failed - 1, len(delays_ms) - 1)]
        which = f"publish attempt {failed} of {self._retry.max_attempts}"
        detail = f"{reason.code}: {reason.detail}; {which}"
        return Hop(delivery, REQUEUED, detail, again_ms, failed)

    def _against_rules(self, prefix: str, delivery: Delivery) -> Rejection | None:
        target = delivery.target
        if self._targets.batch_limit_bytes(target) is None:
            return None
        rules = self._targets.rules.get(target)
        if rules is not None and rules.needs_key and delivery.key is None:
            why = f"the topic {target} is compacted: its records need a key"
            return Rejection("publish-failed", why)
        size_bytes = self._targets.exceeding_bytes(
            target, delivery.key, delivery.value, delivery_headers(prefix, delivery)
        )
        if size_bytes is None:
            return None
        limit = f"allows {rules.max_message_bytes}" if rules else "rejects this size"
        why = f"the record has {size_bytes} bytes, the topic {target} {limit} (max.message.bytes)"
        return Rejection("too-large", why)

    def _put_off(self, prefix: str, delivery: Delivery) -> Hop | None:
        """Return a hop if this transaction saw similar records refused. The record is then sent in
        a later transaction."""
        target = delivery.target
        if not self._refusals.has_tried_enough(target):
            return None
        size_bytes = record_batch_bytes(
            delivery.key, delivery.value, delivery_headers(prefix, delivery)
        )
        if not self._refusals.is_suspect(self._targets, target, size_bytes):
            return None
        ref = prefix, delivery.offset
        if ref not in self._put_off_ms:
            self._put_off_ms[ref] = self._refusals.later_ms(self._now_ms)
        why = (
            f"{target} has rejected similar records, so this record is sent in a separate "
            "transaction"
        )
        return Hop(delivery, REQUEUED, why, self._put_off_ms[ref])

    def _unless_refused(self, ingress: IngressPartition, hop: Hop) -> Hop | Rejection:
        if ingress.topic not in self._refusals.limited:
            return hop
        if not self._exceeds(successor(ingress, hop)):
            return hop
        why = (
            f"the record cannot be written to {ingress.topic} again, because it has become "
            "too large"
        )
        return Rejection("too-large", why)

    def _exceeds(self, record: OutgoingRecord) -> bool:
        """Return whether this transaction has shown that the topic refuses the size. Findings of
        earlier transactions may no longer hold."""
        topic = record.topic
        is_limited = topic in self._refusals.limited
        return is_limited and self._is_too_large(topic, record.key, record.value, record.headers)

    def _is_too_large(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Headers
    ) -> bool:
        if self._targets.exceeding_bytes(topic, key, value, headers) is not None:
            return True
        size_bytes = record_batch_bytes(key, value, headers)
        return self._refusals.is_too_large(self._targets, topic, size_bytes)

    def _can_be_written(self, ingress: IngressPartition, record: OutgoingRecord) -> bool:
        """Return whether to write an auxiliary record. It does no harm to leave out a check-back or
        the move of a paused record."""
        if record.ref is None:
            return True
        refused = self._refusals.refused.get(record.ref)
        if record.topic == ingress.topic:
            is_at_fault = refused is not None and refused.code in BY_RECORD_BATCH
            return not (is_move(record) and (is_at_fault or self._exceeds(record)))
        why = refused or self._targets.refusal_at(record.topic, record.partition, record.key)
        if why is None and self._exceeds(record):
            why = Rejection("too-large", f"{record.topic} takes no records of this size")
        if why is not None:
            log.warning("check-back not written", topic=record.topic, why=why.detail)
        return why is None


VALUE: Final = "value"
CONTENT: Final = "key, value and headers"
"""Parts that a dead letter leaves out if its topic refuses the whole letter."""


IsLetterRefused: TypeAlias = Callable[[RecordRef, OutgoingRecord, str], bool]


class OutgoingRecords:
    """Makes the records of batches. `authenticator` signs records for the ingress."""

    def __init__(
        self, dead_letter_topic: str, outcome_topic: str, authenticator: HopAuthenticator
    ) -> None:
        self._dead_letter_topic, self._outcome_topic = dead_letter_topic, outcome_topic
        self._authenticator = authenticator
        self.own_topics = {dead_letter_topic, outcome_topic}

    def deliveries(self, batch: Batch[Delivery]) -> Iterator[OutgoingRecord]:
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
        batch: Batch[Any],
        is_letter_refused: IsLetterRefused = lambda _ref, _letter, _left_out: False,
    ) -> Iterator[OutgoingRecord]:
        """Yield auxiliary records, successors of hops, dead letters and outcomes. A dead letter is
        shortened until `is_letter_refused` accepts it."""
        ingress = batch.ingress
        prefix = ingress.prefix
        for record in (*batch.auxiliary, *(successor(ingress, hop) for hop in batch.hops)):
            yield self._signed(record) if record.topic == ingress.topic else record
        for letter in batch.dead_letters:
            ref = prefix, letter.offset
            without_value = letter._replace(value=None)
            bare = without_value._replace(key=None, headers=[])
            for left_out, kept in (("", letter), (VALUE, without_value), (CONTENT, bare)):
                written = self._dead_letter(ingress, kept, ref)
                if left_out == CONTENT or not is_letter_refused(ref, written, left_out):
                    break
            yield written
            yield self._outcome(ingress, self._outcome_of(letter, left_out))
        for outcome in batch.outcomes:
            yield self._outcome(ingress, outcome)
        for hop in batch.hops:
            yield self._outcome(ingress, outcome_of(hop))

    def _signed(self, record: OutgoingRecord) -> OutgoingRecord:
        _topic, value, key, partition, headers, *_ = record
        signed = self._authenticator.signed(partition, key, value, headers)
        return record._replace(headers=signed)

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
            detail += f"; its dead letter has no {left_out}: {topic} takes no records of this size"
        return Outcome(letter.offset, letter.outcome, letter.due_ms, letter.ident, detail)

    def _outcome(self, ingress: IngressPartition, outcome: Outcome) -> OutgoingRecord:
        key = ingress.origin(outcome.offset).encode()
        return OutgoingRecord(self._outcome_topic, outcome.to_json(ingress), key, -1, [])


def delivery_headers(prefix: str, delivery: Delivery) -> Headers:
    """Return the record's own headers without requests, followed by the stamps."""
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
