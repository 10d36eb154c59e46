"""Decisions about each record at its ingestion: it pends, ends another record, or ends."""

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias

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
    ParsedBatch,
    ParsedRecord,
    Prepare,
    Purge,
    Recall,
    RejectedHop,
    Scheduled,
)
from proxy.protocol.position import Watermark
from proxy.protocol.request_reader import ReadersByOffset
from proxy.scheduling.batch import TransactionBuffer
from proxy.scheduling.half_messages import (
    CHECK_BACK_BYTES,
    HalfMessages,
    entry_of_lost,
    record_of,
)
from proxy.scheduling.identities import IS_OVER, MOST_READ, Identities, MissedMoves, Recalls
from proxy.scheduling.purges import Purges
from storage.store import Entry, Named

NEVER_DECIDED: Final = Rejection(
    "transaction-expired",
    "nobody has committed or rolled back this half message, though its producer was asked for as "
    "long as the settings say: see to the producer, then send the record again",
)

CountIntake: TypeAlias = Callable[[IngressPartition, Sequence[Message], ParsedBatch], None]
"""Called with records taken for the first time, and their requests."""

_fires_ms = itemgetter(0)


class IngestLimits(NamedTuple):
    """Bounds for records ingested together. Records below `committed` are a replay: they and the
    records that they end have ended before."""

    now_ms: int
    max_records: int
    max_bytes: int
    watermark: Watermark
    committed: int


class Admitted(NamedTuple):
    """The number of records taken, and the entries that pend."""

    taken: int
    entries: Sequence[Entry]
    waits_for_clock: bool


class Admission:
    """Ingests the records of a shard in offset order. `buffer` has the records that end with the
    transaction that ingests them. `count_intake` may be told of a record more than once."""

    def __init__(
        self,
        ingress: IngressPartition,
        readers: ReadersByOffset,
        identities: Identities,
        half_messages: HalfMessages,
        recalls: Recalls,
        purges: Purges,
        missed: MissedMoves,
        count_intake: CountIntake,
    ) -> None:
        self.buffer = TransactionBuffer()
        self.awaited_move: int | None = None
        """The entry whose move was written last, and is unread in the ingress."""
        self._ingress = ingress
        self._readers, self._identities = readers, identities
        self._half_messages, self._recalls = half_messages, recalls
        self._purges, self._missed = purges, missed
        self._count_intake = count_intake
        self._entries: list[Entry] = []
        self._waits_for_clock = False

    def admit(self, messages: Sequence[Message], limits: IngestLimits) -> Admitted:
        """Take the first `messages` under one policy, while there is room."""
        batch, is_replay = self._parse(messages, limits.committed)
        admitted = self._admit(messages, batch, limits, is_replay=is_replay)
        if admitted.taken and not is_replay:
            self._count_intake(self._ingress, messages[: admitted.taken], batch)
        return admitted

    def _admit(
        self,
        messages: Sequence[Message],
        batch: ParsedBatch,
        limits: IngestLimits,
        *,
        is_replay: bool,
    ) -> Admitted:
        if (waiting := self._all_wait(batch, limits)) is not None:
            return Admitted(len(batch), waiting, waits_for_clock=False)
        self._identities.look_up(batch.idents())
        self._recalls.expect(batch.recalled())
        self._entries, self._waits_for_clock = [], False
        register_new, watermark = self._identities.register_new, limits.watermark
        taken = len(batch)
        for number, (entry, ident, due_ms) in enumerate(batch.own()):
            if (
                entry is not None
                and (entry[0] > watermark[0] or entry[:2] > watermark)
                and (ident is None or register_new(entry, ident, due_ms))
            ):
                self._entries.append(entry)
            elif is_replay:
                self._take(messages[number], batch[number], TransactionBuffer(), limits)
            elif self._is_full(limits) or not self._take(
                messages[number], batch[number], self.buffer, limits
            ):
                taken = number
                break
        return Admitted(taken, self._entries, self._waits_for_clock)

    def _is_full(self, limits: IngestLimits) -> bool:
        buffer = self.buffer
        return len(buffer) >= limits.max_records or buffer.size_bytes >= limits.max_bytes

    def _parse(self, messages: Sequence[Message], committed: int) -> tuple[ParsedBatch, bool]:
        first = messages[0].offset()
        reader, until = self._readers.at(first)
        is_replay = first < committed
        if is_replay:
            until = min(until, committed)
        if messages[-1].offset() >= until:
            messages = [message for message in messages if message.offset() < until]
        return reader.read_batch(messages), is_replay

    def _all_wait(self, batch: ParsedBatch, limits: IngestLimits) -> Sequence[Entry] | None:
        """Return the entries if all records simply pend, the fast path of the usual case."""
        waiting = batch.waiting()
        if waiting is None or min(map(_fires_ms, waiting.entries)) <= limits.watermark.due_ms:
            return None
        if waiting.idents and not self._identities.register_all_new(waiting.named, waiting.idents):
            return None
        return waiting.entries

    def _take(
        self,
        message: Message,
        parsed: ParsedRecord,
        buffer: TransactionBuffer,
        limits: IngestLimits,
    ) -> bool:
        """Take a record that does not simply pend. Return False if it must wait."""
        offset = message.offset()
        match parsed:
            case Scheduled():
                return self._take_scheduled(offset, parsed, buffer, limits)
            case Prepare():
                return self._take_half_message(offset, parsed, buffer, limits)
            case Decision():
                return self._decide(offset, parsed, buffer, limits)
            case Cancel():
                buffer.outcomes += self._identities.cancel(offset, parsed.ident)
            case Recall():
                return self._recall(offset, parsed, buffer)
            case Purge():
                self._purges.add(offset, parsed)
                buffer.outcomes.append(Outcome(offset, APPLIED, None, None))
            case RejectedHop():
                self._reject_hop(message, parsed, buffer)
            case Rejection():
                buffer.add_dead_letter(_dead_letter(message, parsed))
        return True

    def _reject_hop(self, message: Message, hop: RejectedHop, buffer: TransactionBuffer) -> None:
        self._note_read(hop.hop_from)
        if hop.moved is not None and not self._move_rejected(message, hop, buffer):
            return
        outcome = self._identities.reject_hop(message.offset(), hop)
        if outcome is None:
            buffer.add_dead_letter(_dead_letter(message, hop.rejection))
        else:
            buffer.outcomes.append(outcome)

    def _move_rejected(self, message: Message, hop: RejectedHop, buffer: TransactionBuffer) -> bool:
        """Return whether a rejected move ends in the place that it was written for. Only the policy
        at `hop_from`, which accepted the pending entry, gives its target. Once that entry has
        ended, this policy may be forgotten."""
        as_taken = self._readers.read(message, hop.hop_from)
        if isinstance(as_taken, Scheduled):
            return self._move(message.offset(), as_taken, buffer)
        is_replay = buffer is not self.buffer
        if not is_replay:
            self._miss(Outcome(message.offset(), MISSED, None, hop.ident, IS_OVER))
        return is_replay

    def _may_fire(self, entry: Entry, limits: IngestLimits) -> bool:
        """Return False if the clock has not reached an entry that the watermark has passed."""
        must_wait = entry[0] > limits.now_ms and entry[:2] <= limits.watermark
        self._waits_for_clock |= must_wait
        return not must_wait

    def _schedule(self, entry: Entry, buffer: TransactionBuffer, limits: IngestLimits) -> bool:
        """Let the entry pend, or deliver it at once. Return False if it must wait."""
        if entry[:2] > limits.watermark:
            self._entries.append(entry)
        elif buffer is not self.buffer or self._may_fire(entry, limits):
            buffer.add_delivery(entry)
        else:
            return False
        return True

    def _take_scheduled(
        self, offset: int, scheduled: Scheduled, buffer: TransactionBuffer, limits: IngestLimits
    ) -> bool:
        if buffer is self.buffer and not self._may_fire(scheduled.entry, limits):
            return False
        if scheduled.moved is not None and not self._move(offset, scheduled, buffer):
            return True
        outcomes, stays = self._identities.admit(offset, scheduled)
        buffer.outcomes += outcomes
        return self._schedule(scheduled.entry, buffer, limits) if stays else True

    def _move(self, offset: int, scheduled: Scheduled, buffer: TransactionBuffer) -> bool:
        """Return whether the record takes the place that it was written for. This is decided once:
        after the other entry has ended both cases look alike."""
        assert scheduled.moved is not None, scheduled
        self._note_read(scheduled.hop_from)
        if buffer is not self.buffer:
            self._identities.move_again(offset, scheduled, scheduled.moved)
            return True
        ended = self._identities.move(offset, scheduled, scheduled.moved)
        if ended is not None:
            buffer.outcomes.append(ended)
            return True
        due_ms, target = scheduled.due_ms, scheduled.entry[2]
        self._miss(Outcome(offset, MISSED, due_ms, scheduled.ident, IS_OVER, target=target))
        return False

    def _note_read(self, hop_from: int | None) -> None:
        if hop_from == self.awaited_move:
            self.awaited_move = None

    def _miss(self, missed: Outcome) -> None:
        self.buffer.outcomes.append(missed)
        self._missed.add(missed.offset)

    def _take_half_message(
        self, offset: int, prepare: Prepare, buffer: TransactionBuffer, limits: IngestLimits
    ) -> bool:
        """Take a half message. Its events up to the watermark happen now."""
        events = self._half_messages.passed(offset, prepare)
        if buffer is self.buffer and events and events[-1].fires_ms > limits.now_ms:
            self._waits_for_clock = True
            return False
        if buffer is self.buffer and events and buffer.auxiliary_bytes >= CHECK_BACK_BYTES:
            return False
        buffer.outcomes += self._identities.prepare(offset, prepare)
        for event in events:
            if (record := record_of(self._ingress, event)) is not None:
                buffer.add_auxiliary(record)
        return True

    def _recall(self, offset: int, recall: Recall, buffer: TransactionBuffer) -> bool:
        """Apply a recall. Each reads the ingress, so a transaction holds at most MOST_READ."""
        if buffer.recalls >= MOST_READ:
            return False
        buffer.recalls += 1
        buffer.outcomes += self._recalls.apply(offset, recall)
        return True

    def _decide(
        self, offset: int, decision: Decision, buffer: TransactionBuffer, limits: IngestLimits
    ) -> bool:
        half = self._identities.half_message_of(decision.ident)
        if half is None or decision.hop_from not in (None, half.offset):
            detail = "no half message with this id is undecided"
            buffer.outcomes.append(Outcome(offset, MISSED, None, decision.ident, detail))
            return True
        if decision.what == "commit":
            entry, rolls = self._committed(offset, half)
            if not self._schedule(entry, buffer, limits):
                return False
            self._identities.commit(offset, decision.ident, half, entry[0], rolls=rolls)
        else:
            self._undo(decision, half, buffer)
            self._identities.drop(offset, decision.ident, half)
        buffer.outcomes.append(Outcome(offset, APPLIED, None, decision.ident))
        return True

    def _committed(self, offset: int, half: Named) -> tuple[Entry, bool]:
        """Return the commit's entry, which delivers the half message, and whether it rolls."""
        prepare = self._half_messages.prepare(half.offset)
        if prepare is None:
            return entry_of_lost(offset, half), False
        fires_ms, _offset, target, body = prepare.entry
        return (fires_ms, offset, target, body), prepare.rolls

    def _undo(self, decision: Decision, half: Named, buffer: TransactionBuffer) -> None:
        if decision.what == "rollback":
            rolled_back = Outcome(
                half.origin, ROLLED_BACK, half.due_ms, decision.ident, target=half.target
            )
            buffer.outcomes.append(rolled_back)
        else:
            entry, _rolls = self._committed(half.offset, half)
            letter = dead_letter_of(delivery_of(entry), NEVER_DECIDED)
            buffer.add_dead_letter(letter._replace(outcome=EXPIRED, ident=decision.ident))


def _dead_letter(message: Message, rejection: Rejection) -> DeadLetter:
    return DeadLetter(
        message.offset(),
        None,
        rejection,
        message.key(),
        message.value(),
        message.headers() or [],
    )
