"""A hundred ingress records of a partition, and the records that a correct proxy writes for them.
No record refers to a record of another hundred. This module builds plain records itself. It builds
hops, dead letters and outcomes with the proxy's own code."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Final, NamedTuple

from proxy.dispatch.dispatcher import delivery_headers
from proxy.dispatch.hops import outcome_of, successor
from proxy.protocol import headers as names
from proxy.protocol import outcomes
from proxy.protocol.body import Delivery, Headers, IngressPartition
from proxy.protocol.outcomes import DeadLetter, Outcome, Rejection, dead_letter_headers
from proxy.protocol.proofs import HopAuthenticator
from proxy.scheduling.batch import Hop
from tools.benchmarks.audit_scale.times import RETRY_MS, Moment
from tools.benchmarks.audit_scale.topics import Topics

RECORDS: Final = 100
VERDICTS: Final = {
    "delivered": 67,
    "pending": 20,
    "requeued": 3,
    "rolled": 2,
    "applied": 2,
    "replaced": 2,
    "cancelled": 1,
    "dead_lettered": 3,
}
"""Expected verdicts of each hundred."""
PLAIN: Final = range(55)
PENDING: Final = range(55, 75)
PENDING_WITH_ID: Final = range(55, 57)
HOPS: Final = range(75, 80)
"""The first three are requeued, the others are rolled. A record's successor is five slots later."""
REQUEUED: Final = range(75, 78)
PREPARE, COMMIT = 85, 86
REPLACED: Final = range(87, 89)
"""Each of these records is replaced by the record two slots later."""
WITH_ID: Final = range(89, 95)
CANCELLED, CANCEL = 95, 96
NO_TARGET, NO_TIME, NOT_TAKEN = 97, 98, 99
NOT_READ: Final = {
    NO_TARGET: Rejection("target-missing", "no timer-topic header"),
    NO_TIME: Rejection("time-unreadable", "timer-deliver-at: 'tomorrow' is no time"),
}
LOST: Final = Rejection("publish-failed", "the broker refused the record")


class Written(NamedTuple):
    """A record as arguments of a producer. With partition -1 the key decides the partition."""

    topic: str
    value: bytes | None
    key: bytes | None
    partition: int
    headers: Headers
    at_ms: int


@dataclass(frozen=True, slots=True)
class Mix:
    topics: Topics
    authenticator: HopAuthenticator
    values: tuple[bytes, ...]

    def hundred(self, partition: int, first: int, moment: Moment) -> "Hundred":
        ingress = IngressPartition(self.topics.ingress, partition)
        values = list(islice(cycle(self.values), RECORDS))
        return Hundred(self.topics, self.authenticator, ingress, first, moment, values)


@dataclass(frozen=True, slots=True)
class Hundred:
    """Records with the offsets from `first` on. A slot is an offset relative to `first`."""

    topics: Topics
    authenticator: HopAuthenticator
    ingress: IngressPartition
    first: int
    moment: Moment
    values: list[bytes]

    def records(self) -> Iterator[Written]:
        for slot in PLAIN:
            yield self._request(slot, self.moment.due_ms(slot))
        for slot in PENDING:
            ident = self._ident(slot) if slot in PENDING_WITH_ID else None
            yield self._request(slot, self.moment.far_ms, ident)
        for slot in HOPS:
            yield self._request(slot, self._hop_due_ms(slot), at_ms=self._hop_at_ms(slot))
        for slot in HOPS:
            yield self._successor(slot)
        prepare: Headers = [(names.TRANSACTION, names.PREPARE)]
        yield self._request(PREPARE, self.moment.due_ms(PREPARE), self._ident(PREPARE), prepare)
        yield self._control(COMMIT, self._ident(PREPARE), self._commit())
        for slot in (*REPLACED, *WITH_ID, CANCELLED):
            yield self._request(slot, self.moment.due_ms(slot), self._ident_of(slot))
        cancelled = self._ident(CANCELLED)
        yield self._control(CANCEL, cancelled, [(names.CANCEL, cancelled)])
        for slot in NOT_READ:
            yield self._written(slot, self._unreadable(slot))
        yield self._request(NOT_TAKEN, self.moment.due_ms(NOT_TAKEN))

    def ends(self) -> Iterator[Written]:
        for slot in PLAIN:
            yield self._delivered(slot)
        for slot in HOPS:
            yield self._delivered_after_hop(slot)
            yield self._outcome(outcome_of(self._hop(slot)))
        for slot in (PREPARE, *WITH_ID):
            yield self._delivered(slot)
        for outcome in self._outcomes():
            yield self._outcome(outcome)
        for letter in self._letters():
            yield from self._buried(letter)

    def _request(
        self,
        slot: int,
        due_ms: int,
        ident: bytes | None = None,
        more: Headers | None = None,
        at_ms: int | None = None,
    ) -> Written:
        """Return a timer record. If it has an id, the id is its Kafka key too."""
        key, due = self._key(slot), b"%d" % due_ms
        headers: Headers = [(names.TOPIC, self._target(slot)), (names.DELIVER_AT, due)]
        if ident is not None:
            headers += [(names.ID, ident), (names.KEY, key), *(more or [])]
        headers.append(("trace", key))
        return self._written(slot, headers, ident or key, at_ms)

    def _control(self, slot: int, ident: bytes, headers: Headers) -> Written:
        return self._written(slot, headers, ident)._replace(value=None)

    def _written(
        self, slot: int, headers: Headers, key: bytes | None = None, at_ms: int | None = None
    ) -> Written:
        topic, partition = self.ingress
        at_ms = self.moment.written_ms if at_ms is None else at_ms
        key = key or self._key(slot)
        return Written(topic, self.values[slot], key, partition, headers, at_ms)

    def _delivered(self, slot: int) -> Written:
        due_ms, key = self.moment.due_ms(slot), self._key(slot)
        origin = b"%s/%d/%d" % (self.topics.ingress_bytes, self.ingress.number, self.first + slot)
        headers: Headers = [("trace", key), (names.ORIGIN, origin), (names.DUE, b"%d" % due_ms)]
        target = self.topics.target(slot)
        return Written(target, self.values[slot], key, -1, headers, self.moment.ended_ms(due_ms))

    def _delivered_after_hop(self, slot: int) -> Written:
        went_on = self._successor(slot)
        delivery = self._delivery(slot, self._hop_due_ms(slot), went_on.headers)
        moved = delivery._replace(offset=self.first + slot + len(HOPS))
        headers = delivery_headers(self.ingress.prefix, moved)
        wanted_ms = self._hop_due_ms(slot) + (RETRY_MS if slot in REQUEUED else 0)
        target, at_ms = self.topics.target(slot), self.moment.ended_ms(wanted_ms)
        return Written(target, delivery.value, delivery.key, -1, headers, at_ms)

    def _successor(self, slot: int) -> Written:
        made = successor(self.ingress, self._hop(slot))
        headers = self.authenticator.signed(made.partition, made.key, made.value, made.headers)
        at_ms = self.moment.hopped_ms
        return Written(made.topic, made.value, made.key, made.partition, headers, at_ms)

    def _hop(self, slot: int) -> Hop:
        due_ms = self._hop_due_ms(slot)
        asked = self._request(slot, due_ms).headers
        delivery = self._delivery(slot, due_ms, asked)
        if slot not in REQUEUED:
            return Hop(delivery, outcomes.ROLLED)
        detail = "target-unknown: the target topic does not exist (attempt 1 of 16)"
        return Hop(delivery, outcomes.REQUEUED, detail, due_ms + RETRY_MS, 1)

    def _hop_due_ms(self, slot: int) -> int:
        return self.moment.written_ms if slot in REQUEUED else self.moment.due_ms(slot)

    def _hop_at_ms(self, slot: int) -> int:
        return self.moment.written_ms if slot in REQUEUED else self.moment.long_before_ms

    def _delivery(self, slot: int, due_ms: int, headers: Headers) -> Delivery:
        offset, key = self.first + slot, self._key(slot)
        target, value = self.topics.target(slot), self.values[slot]
        return Delivery(due_ms, offset, target, -1, key, value, headers, offset, due_ms, due_ms)

    def _outcomes(self) -> Iterator[Outcome]:
        first, due_ms = self.first, self.moment.due_ms
        yield Outcome(first + COMMIT, outcomes.APPLIED, None, self._ident(PREPARE))
        for slot in REPLACED:
            after = first + slot + len(REPLACED)
            ident = self._ident(slot)
            yield Outcome(first + slot, outcomes.REPLACED, due_ms(slot), ident, "", after)
        cancelled, ident = first + CANCELLED, self._ident(CANCELLED)
        yield Outcome(cancelled, outcomes.CANCELLED, due_ms(CANCELLED), ident)
        yield Outcome(first + CANCEL, outcomes.APPLIED, None, ident)

    def _letters(self) -> Iterator[DeadLetter]:
        for slot, reason in NOT_READ.items():
            yield self._letter(slot, None, reason, self._unreadable(slot))
        due_ms = self.moment.due_ms(NOT_TAKEN)
        yield self._letter(NOT_TAKEN, due_ms, LOST, self._request(NOT_TAKEN, due_ms).headers)

    def _letter(
        self, slot: int, due_ms: int | None, reason: Rejection, headers: Headers
    ) -> DeadLetter:
        value = self.values[slot]
        return DeadLetter(self.first + slot, due_ms, reason, self._key(slot), value, headers)

    def _unreadable(self, slot: int) -> Headers:
        if slot == NO_TARGET:
            return [(names.DELIVER_AT, b"%d" % self.moment.due_ms(slot))]
        return [(names.TOPIC, self._target(slot)), (names.DELIVER_AT, b"tomorrow")]

    def _buried(self, letter: DeadLetter) -> Iterator[Written]:
        headers = dead_letter_headers(letter, self.ingress.origin(letter.offset))
        at_ms = self.moment.ended_ms(letter.due_ms or self.moment.written_ms)
        yield Written(self.topics.dead_letters, letter.value, letter.key, -1, headers, at_ms)
        detail = f"{letter.reason.code}: {letter.reason.detail}"
        ended = Outcome(letter.offset, letter.outcome, letter.due_ms, letter.ident, detail)
        yield self._outcome(ended, at_ms)

    def _outcome(self, outcome: Outcome, at_ms: int | None = None) -> Written:
        key = self.ingress.origin(outcome.offset).encode()
        at_ms = self.moment.hopped_ms if at_ms is None else at_ms
        return Written(self.topics.outcomes, outcome.to_json(self.ingress), key, -1, [], at_ms)

    def _commit(self) -> Headers:
        return [(names.ID, self._ident(PREPARE)), (names.TRANSACTION, names.COMMIT)]

    def _ident_of(self, slot: int) -> bytes:
        """Return the record's id. A replacement has the id of the record it replaces."""
        is_later = slot - len(REPLACED) in REPLACED
        return self._ident(slot - len(REPLACED) if is_later else slot)

    def _ident(self, slot: int) -> bytes:
        return b"id-%d-%d" % (self.ingress.number, self.first + slot)

    def _key(self, slot: int) -> bytes:
        return b"order-%d-%d" % (self.ingress.number, self.first + slot)

    def _target(self, slot: int) -> bytes:
        return self.topics.target_bytes(slot)
