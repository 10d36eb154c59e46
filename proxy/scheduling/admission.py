"""What becomes of each record as it is ingested: it pends, or it ends something, or itself."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter, itemgetter
from typing import Final, NamedTuple, cast

from proxy.records.dead_letter import DeadLetter, dead_letter_of
from proxy.records.delivery import delivery_of
from proxy.records.ingress_partition import IngressPartition
from proxy.records.message import Message
from proxy.records.outcome import Outcome
from proxy.records.rejection import Rejection
from proxy.requests.parsed import (
    Cancel,
    Decision,
    Fate,
    Known,
    Prepare,
    Read,
    Stray,
    WithId,
    parted,
    unfolded,
)
from proxy.requests.policy_timeline import Judges
from proxy.scheduling.half_message_records import gone_half, record_of
from proxy.scheduling.identities import Identities
from proxy.scheduling.transaction_buffer import TransactionBuffer
from proxy.scheduling.undecided import Undecided
from storage.register import Key, Named
from storage.store import Entry

EXPIRED = Rejection(
    "transaction-expired",
    "nobody has committed or rolled back this half message, though its producer was asked for as "
    "long as the settings say: see to the producer, then send the record again",
)

PLAIN_TUPLES: Final = {tuple}

_ident, _fires_ms = attrgetter("ident"), itemgetter(0)


class Turn(NamedTuple):
    """What counts for records ingested together. What lies below `committed` is read again: it has
    ended what it ends before."""

    now_ms: int
    room: int
    mark: Key
    committed: int


class Admitted(NamedTuple):
    """How many records were taken, and which entries of them pend."""

    taken: int
    entries: Sequence[Entry]
    waits_for_clock: bool


class Admission:
    """Ingests the records of a shard in offset order.

    `ends` grows with what ends in the very transaction that ingests it.
    """

    def __init__(
        self,
        ingress: IngressPartition,
        judges: Judges,
        identities: Identities,
        undecided: Undecided,
    ) -> None:
        self.ends = TransactionBuffer()
        self._ingress = ingress
        self._judges, self._identities, self._undecided = judges, identities, undecided
        self._entries: list[Entry] = []
        self._waits_for_clock = False

    def admit(self, messages: Sequence[Message], turn: Turn) -> Admitted:
        """Take the first of `messages`, as long as one policy counts and there is room."""
        read, is_replay = self._read(messages, turn.committed)
        if (waiting := self._all_wait(read, turn)) is not None:
            return Admitted(len(read), waiting, waits_for_clock=False)
        fates = list(map(unfolded, read))
        self._look_up(fates)
        watermark_ms, cursor = turn.mark
        self._entries, self._waits_for_clock = [], False
        name_anew, taken = self._identities.name_anew, len(fates)
        for number, fate in enumerate(fates):
            if type(fate) is tuple and (  # an Entry; mypy does not follow
                fate[0] > watermark_ms  # type: ignore[operator]
                or (fate[0] == watermark_ms and fate[1] > cursor)
            ):
                self._entries.append(fate)  # type: ignore[arg-type]
            elif type(fate) is Known and fate.entry[:2] > turn.mark and name_anew(fate):
                self._entries.append(fate.entry)
            elif is_replay:
                self._take(messages[number], fate, TransactionBuffer(), turn)
            elif len(self.ends) >= turn.room or not self._take(
                messages[number], fate, self.ends, turn
            ):
                taken = number
                break
        return Admitted(taken, self._entries, self._waits_for_clock)

    def _read(self, messages: Sequence[Message], committed: int) -> tuple[list[Read], bool]:
        """The fates of the first messages that one policy judges, and whether it is a replay."""
        first = messages[0].offset()
        read, until = self._judges.at(first)
        is_replay = first < committed
        if is_replay:
            until = min(until, committed)
        if messages[-1].offset() >= until:
            messages = [message for message in messages if message.offset() < until]
        fates = [
            read(m.headers() or [], m.key(), m.value(), m.timestamp()[1], m.offset())
            for m in messages
        ]
        return fates, is_replay

    def _all_wait(self, read: list[Read], turn: Turn) -> Sequence[Entry] | None:
        """Their entries, if each is simply to wait: the usual case, done for all at once."""
        if set(map(type, read)) != PLAIN_TUPLES:
            return None
        entries, named, idents = parted(cast("list[Entry | WithId]", read))
        if min(map(_fires_ms, entries)) <= turn.mark[0]:
            return None
        return entries if not named or self._identities.name_all_anew(named, idents) else None

    def _look_up(self, fates: list[Fate]) -> None:
        others = [f for f in fates if type(f) is not tuple and type(f) is not Rejection]
        idents = map(_ident, others)
        self._identities.look_up([ident for ident in idents if ident is not None])

    def _take(self, message: Message, fate: Fate, ends: TransactionBuffer, turn: Turn) -> bool:
        """A record that does not simply pend; False when it must wait."""
        offset = message.offset()
        match fate:
            case Known():
                return self._take_known(offset, fate, ends, turn)
            case Prepare():
                return self._take_half(offset, fate, ends, turn)
            case Cancel():
                ends.outcomes += self._identities.cancel(offset, fate.ident)
            case Decision():
                return self._decide(offset, fate, ends, turn)
            case Stray():
                outcome = self._identities.stray(offset, fate)
                if outcome is None:
                    ends.dead_letters.append(_dead(message, fate.rejection))
                else:
                    ends.outcomes.append(outcome)
            case Rejection():
                ends.dead_letters.append(_dead(message, fate))
            case _:
                return self._schedule(fate, ends, turn)
        return True

    def _may_fire(self, entry: Entry, turn: Turn) -> bool:
        """False for an entry due by the watermark that this machine's clock has not reached."""
        must_wait = entry[0] > turn.now_ms and entry[:2] <= turn.mark
        self._waits_for_clock |= must_wait
        return not must_wait

    def _schedule(self, entry: Entry, ends: TransactionBuffer, turn: Turn) -> bool:
        """The entry pends, or is delivered at once; False when it must wait."""
        if entry[:2] > turn.mark:
            self._entries.append(entry)
        elif ends is not self.ends or self._may_fire(entry, turn):
            ends.deliveries.append(entry)
        else:
            return False
        return True

    def _take_known(self, offset: int, known: Known, ends: TransactionBuffer, turn: Turn) -> bool:
        if ends is self.ends and not self._may_fire(known.entry, turn):
            return False
        outcomes, stays = self._identities.admit(offset, known)
        ends.outcomes += outcomes
        return self._schedule(known.entry, ends, turn) if stays else True

    def _take_half(
        self, offset: int, prepare: Prepare, ends: TransactionBuffer, turn: Turn
    ) -> bool:
        """What was to happen to it by the watermark, had it been read in time, happens now."""
        events = self._undecided.passed(offset, prepare)
        if ends is self.ends and events and events[-1].fires_ms > turn.now_ms:
            self._waits_for_clock = True
            return False
        ends.outcomes += self._identities.prepare(offset, prepare)
        written = (record_of(self._ingress, event) for event in events)
        ends.auxiliary += [record for record in written if record is not None]
        return True

    def _decide(self, offset: int, decision: Decision, ends: TransactionBuffer, turn: Turn) -> bool:
        half = self._identities.half_of(decision.ident)
        if half is None or decision.hop_from not in (None, half.offset):
            detail = "no half message with this id is undecided"
            ends.outcomes.append(Outcome(offset, "missed", None, decision.ident, detail))
            return True
        if decision.what == "commit":
            entry, rolls = self._committed(offset, half)
            if not self._schedule(entry, ends, turn):
                return False
            self._identities.commit(offset, decision.ident, half, entry[0], rolls=rolls)
        else:
            self._undo(decision, half, ends)
            self._identities.drop(offset, decision.ident, half)
        ends.outcomes.append(Outcome(offset, "applied", None, decision.ident))
        return True

    def _committed(self, offset: int, half: Named) -> tuple[Entry, bool]:
        """The commit's entry, which delivers the half message, and whether it rolls."""
        prepare = self._undecided.prepare(half.offset)
        if prepare is None:
            return gone_half(offset, half), False
        fires_ms, _offset, target, body = prepare.entry
        return (fires_ms, offset, target, body), prepare.rolls

    def _undo(self, decision: Decision, half: Named, ends: TransactionBuffer) -> None:
        if decision.what == "rollback":
            ends.outcomes.append(Outcome(half.origin, "rolled-back", half.due_ms, decision.ident))
        else:
            entry, _rolls = self._committed(half.offset, half)
            letter = dead_letter_of(delivery_of(entry), EXPIRED)
            ends.dead_letters.append(letter._replace(outcome="expired", ident=decision.ident))


def _dead(message: Message, rejection: Rejection) -> DeadLetter:
    return DeadLetter(
        message.offset(),
        None,
        rejection,
        message.key(),
        message.value(),
        message.headers() or [],
    )
