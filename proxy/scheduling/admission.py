"""Decisions at ingestion about records that are more than a new pending entry: control records,
half messages, hops, known ids, and records that end now."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from proxy.protocol.body import IngressPartition, Message, delivery_of
from proxy.protocol.outcomes import (
    APPLIED,
    EXPIRED,
    MISSED,
    ROLLED_BACK,
    DeadLetter,
    Outcome,
    Rejection,
    dead_letter_of,
)
from proxy.protocol.parsed import (
    Cancel,
    Decision,
    ParsedRecord,
    Prepare,
    Purge,
    Recall,
    RejectedHop,
    Scheduled,
)
from proxy.protocol.position import Position, Watermark
from proxy.protocol.request_reader import ParsedBatch, ReadersByOffset
from proxy.scheduling.batch import TransactionBuffer
from proxy.scheduling.half_messages import (
    CHECK_BACK_BYTES,
    HalfMessages,
    ReadBack,
    entry_of_lost,
    record_of,
)
from proxy.scheduling.identities import IS_OVER, MOST_READ, Identities, Recalls
from proxy.scheduling.missed_moves import MissedMoves
from proxy.scheduling.purges import Purges
from storage.ids.register import Register
from storage.store import Entry, Named

NEVER_DECIDED: Final = Rejection(
    "transaction-expired",
    "this half message was neither committed nor rolled back after all checks of its producer: "
    "correct the producer, then send the record again",
)


class IngestLimits(NamedTuple):
    """Limits for records that are ingested together. In a replay (`is_replay`) records are ingested
    again. A committed transaction has already written the outcomes of these records."""

    now_ms: int
    max_records: int
    max_bytes: int
    watermark: Watermark
    is_replay: bool


class Admission:
    """Ingests the records of a shard that need more than a place in the store. `buffer` collects
    the ends of records that end at ingestion. The next transaction writes these ends."""

    def __init__(
        self,
        ingress: IngressPartition,
        position: Position,
        readers: ReadersByOffset,
        register: Register,
        read_back: ReadBack,
        missed: MissedMoves,
    ) -> None:
        self.buffer = TransactionBuffer()
        self.awaited_move: int | None = None
        """Offset of the entry whose move was written last. None once this move is ingested."""
        self.half_messages = HalfMessages(read_back, position)
        self.purges = Purges(ingress, register, position)
        self.identities = Identities(register, self.half_messages, self.purges, position)
        self.recalls = Recalls(read_back, self.identities, missed)
        self.entries: list[Entry] = []
        """Entries for the store, from the latest call of `admit`."""
        self.waits_for_clock = False
        self._ingress, self._readers, self._missed = ingress, readers, missed
        self._limits: IngestLimits
        self._ended = self.buffer
        """Collects the ends of records: `buffer`, or during a replay a buffer that is dropped."""

    def admit(self, messages: Sequence[Message], batch: ParsedBatch, limits: IngestLimits) -> int:
        """Ingest the messages before the first message that must wait. Return how many."""
        self.identities.look_up(batch.idents())
        self.recalls.expect(batch.recalled())
        self.entries, self.waits_for_clock = [], False
        self._limits = limits
        self._ended = ended = TransactionBuffer() if limits.is_replay else self.buffer
        register_new, watermark = self.identities.register_new, limits.watermark
        for number, (entry, ident, due_ms) in enumerate(batch.own()):
            if (
                entry is not None
                and (entry[0] > watermark[0] or entry[:2] > watermark)
                and (ident is None or register_new(entry, ident, due_ms))
            ):
                self.entries.append(entry)
                continue
            is_full = len(ended) >= limits.max_records or ended.size_bytes >= limits.max_bytes
            may_end = limits.is_replay or not is_full
            if not (may_end and self._take(messages[number], batch[number])):
                return number
        return len(batch)

    def _take(self, message: Message, parsed: ParsedRecord) -> bool:
        """Ingest a record that is more than a new entry. Return False if it must wait."""
        offset, ended = message.offset(), self._ended
        match parsed:
            case Scheduled():
                return self._take_scheduled(offset, parsed)
            case Prepare():
                return self._take_half_message(offset, parsed)
            case Decision():
                return self._decide(offset, parsed)
            case Cancel():
                ended.outcomes += self.identities.cancel(offset, parsed.ident)
            case Recall():
                return self._recall(offset, parsed)
            case Purge():
                self.purges.add(offset, parsed)
                ended.outcomes.append(Outcome(offset, APPLIED, None, None))
            case RejectedHop():
                self._reject_hop(message, parsed)
            case Rejection():
                ended.add_dead_letter(_dead_letter(message, parsed))
        return True

    def _reject_hop(self, message: Message, hop: RejectedHop) -> None:
        self._note_read(hop.hop_from)
        if hop.moved is not None and not self._move_rejected(message, hop):
            return
        outcome = self.identities.reject_hop(message.offset(), hop)
        if outcome is None:
            self._ended.add_dead_letter(_dead_letter(message, hop.rejection))
        else:
            self._ended.outcomes.append(outcome)

    def _move_rejected(self, message: Message, hop: RejectedHop) -> bool:
        """Let a rejected move replace its entry. The move becomes the record's dead letter. Return
        False if the move has missed. The move is read by the policy at offset `hop_from`, which
        accepted the entry. If this policy is forgotten, the entry has ended."""
        as_taken = self._readers.read(message, hop.hop_from)
        if isinstance(as_taken, Scheduled):
            return self._move(message.offset(), as_taken)
        if not self._limits.is_replay:
            self._miss(Outcome(message.offset(), MISSED, None, hop.ident, IS_OVER))
        return self._limits.is_replay

    def _may_fire(self, entry: Entry) -> bool:
        """Return False if the watermark has passed the entry, but the clock has not reached it."""
        limits = self._limits
        must_wait = entry[0] > limits.now_ms and entry[:2] <= limits.watermark
        self.waits_for_clock |= must_wait and not limits.is_replay
        return limits.is_replay or not must_wait

    def _schedule(self, entry: Entry) -> bool:
        """Keep the entry pending. If the watermark has passed the entry, deliver the entry now.
        Return False if the entry must wait for the clock."""
        if entry[:2] > self._limits.watermark:
            self.entries.append(entry)
            return True
        may_fire = self._may_fire(entry)
        if may_fire:
            self._ended.add_delivery(entry)
        return may_fire

    def _take_scheduled(self, offset: int, scheduled: Scheduled) -> bool:
        if not self._may_fire(scheduled.entry):
            return False
        if scheduled.moved is not None and not self._move(offset, scheduled):
            return True
        outcomes, stays = self.identities.admit(offset, scheduled)
        self._ended.outcomes += outcomes
        return self._schedule(scheduled.entry) if stays else True

    def _move(self, offset: int, scheduled: Scheduled) -> bool:
        """Let a move replace its entry. Return False if the move has missed. A replay never
        returns False, because missed moves are left out of a replay."""
        assert scheduled.moved is not None, scheduled
        self._note_read(scheduled.hop_from)
        if self._limits.is_replay:
            self.identities.move_again(offset, scheduled, scheduled.moved)
            return True
        ended = self.identities.move(offset, scheduled, scheduled.moved)
        if ended is not None:
            self._ended.outcomes.append(ended)
            return True
        due_ms, target = scheduled.due_ms, scheduled.entry[2]
        self._miss(Outcome(offset, MISSED, due_ms, scheduled.ident, IS_OVER, target=target))
        return False

    def _note_read(self, hop_from: int | None) -> None:
        if hop_from == self.awaited_move:
            self.awaited_move = None

    def _miss(self, missed: Outcome) -> None:
        self._ended.outcomes.append(missed)
        self._missed.add(missed.offset)

    def _take_half_message(self, offset: int, prepare: Prepare) -> bool:
        """Ingest a half message, with its check-backs and expiry at or below the watermark. Return
        False if it must wait."""
        limits, ended = self._limits, self._ended
        events = self.half_messages.passed(offset, prepare)
        if events and not limits.is_replay:
            if events[-1].fires_ms > limits.now_ms:
                self.waits_for_clock = True
                return False
            if ended.auxiliary_bytes >= CHECK_BACK_BYTES:
                return False
        ended.outcomes += self.identities.prepare(offset, prepare)
        for event in events:
            if (record := record_of(self._ingress, event)) is not None:
                ended.add_auxiliary(record)
        return True

    def _recall(self, offset: int, recall: Recall) -> bool:
        """Apply a recall. Return False if it must wait. A transaction has at most MOST_READ
        recalls, because each recall reads a record from the ingress."""
        if self._ended.recalls >= MOST_READ and not self._limits.is_replay:
            return False
        self._ended.recalls += 1
        self._ended.outcomes += self.recalls.apply(offset, recall)
        return True

    def _decide(self, offset: int, decision: Decision) -> bool:
        outcomes = self._ended.outcomes
        half = self.identities.half_message_of(decision.ident)
        if half is None or decision.hop_from not in (None, half.offset):
            detail = "no half message with this id is undecided"
            outcomes.append(Outcome(offset, MISSED, None, decision.ident, detail))
            return True
        if decision.what == "commit":
            entry, rolls = self._entry_of_commit(offset, half)
            if not self._schedule(entry):
                return False
            self.identities.commit(offset, decision.ident, half, entry[0], rolls=rolls)
        else:
            self._roll_back_or_expire(decision, half)
            self.identities.drop(offset, decision.ident, half)
        outcomes.append(Outcome(offset, APPLIED, None, decision.ident))
        return True

    def _entry_of_commit(self, offset: int, half: Named) -> tuple[Entry, bool]:
        """Return the commit's entry, which delivers the half message, and whether it rolls."""
        prepare = self.half_messages.prepare(half.offset)
        if prepare is None:
            return entry_of_lost(offset, half), False
        fires_ms, _offset, target, body = prepare.entry
        return (fires_ms, offset, target, body), prepare.rolls

    def _roll_back_or_expire(self, decision: Decision, half: Named) -> None:
        if decision.what == "rollback":
            rolled_back = Outcome(
                half.origin, ROLLED_BACK, half.due_ms, decision.ident, target=half.target
            )
            self._ended.outcomes.append(rolled_back)
        else:
            entry, _rolls = self._entry_of_commit(half.offset, half)
            letter = dead_letter_of(delivery_of(entry), NEVER_DECIDED)
            self._ended.add_dead_letter(letter._replace(outcome=EXPIRED, ident=decision.ident))


def _dead_letter(message: Message, rejection: Rejection) -> DeadLetter:
    key, value, headers = message.key(), message.value(), message.headers() or []
    return DeadLetter(message.offset(), None, rejection, key, value, headers)
