"""Model of the possible ends of each record. It uses only the order of the ingress log. A *life* is
a producer's record with all its rewrites. A life ends with its delivery, or earlier by the first
later operation that can end it, such as a cancel. All outcomes must agree on which end happened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from tests.support.oracle.asked import (
    Purge,
    Rules,
    asked_ms,
    asked_purge,
    asked_topic,
    is_move,
)
from tests.support.records import Incoming

AT_INGEST = {
    "record-unreadable",
    "header-unreadable",
    "header-unknown",
    "header-unsupported",
    "target-missing",
    "target-illegal",
    "target-refused",
    "time-unreadable",
    "level-unknown",
    "delay-too-long",
    "time-past",
    "id-bad",
    "recall-bad",
    "retry-bad",
    "transaction-bad",
    "hop-bad",
    "purge-bad",
    "partition-bad",
}
NOBODYS = {"hop-bad", "id-bad", "purge-bad"}
"""A record that is refused for one of these reasons is no successor, even if it names a
predecessor."""
GOES_ON = {"rolled", "requeued"}
PURGED = "purged by "
DELIVERED, DEAD, NOTHING = "delivered", "dead-lettered", "nothing"


@dataclass(slots=True)
class Life:
    """A producer's record. `members` are the origins of the record and of its rewrites.
    `is_named_late` says that an operation ended the life during a rewrite. Then the last such
    operation names the end. `purged_by` is the first matching purge. `is_purged` says that this
    purge ended the life. `moved` are the members that are moves. `timed` is the last move, or None
    if `sent` sets the due time."""

    sent: Incoming
    ident: bytes | None
    is_half: bool
    members: list[str] = field(default_factory=list)
    ended_by: str | None = None
    superseded_by: str | None = None
    is_named_late: bool = False
    purged_by: str | None = None
    moved: set[str] = field(default_factory=set)
    timed: Incoming | None = None

    def due_ms(self, rules: Rules) -> int | None:
        """Return the current due time, None for a form that is not judged here."""
        return asked_ms(self.timed or self.sent, rules)

    @property
    def is_purged(self) -> bool:
        return self.purged_by is not None and self.superseded_by == self.purged_by


@dataclass(slots=True)
class Lives:
    """Replay of one partition's log. `ends` has the end of each origin with its detail."""

    origin: str
    ends: Mapping[str, tuple[str, str]]
    rules: Rules
    wrong: list[str] = field(default_factory=list)
    _lives: list[Life] = field(default_factory=list)
    _of_entry: dict[int, Life] = field(default_factory=dict)
    _of_place: dict[str, Life] = field(default_factory=dict)
    _of_id: dict[bytes, Life] = field(default_factory=dict)
    _last: dict[bytes, tuple[int, str]] = field(default_factory=dict)
    _cancels: list[tuple[str, Life | None]] = field(default_factory=list)

    def replay(self, offset: int, record: Incoming) -> None:
        place = f"{self.origin}{offset}"
        hop_from = record.header("timer-hop-from")
        if self._is_refused(place, is_hop=hop_from is not None):
            return
        cancel, decision = record.header("timer-cancel"), record.header("timer-transaction")
        if cancel is not None:
            self._superseded(cancel, "cancelled", place)
        elif (recalled := record.header("timer-recall")) is not None:
            self._recalled(recalled.decode(), record, place)
        elif (purge := asked_purge(record)) is not None:
            self._purged(purge, place)
        elif decision not in (None, b"prepare"):
            self._decided(record, decision or b"", offset, place)
        elif hop_from is not None and is_move(record):
            self._move(int(hop_from), offset, place, record)
        elif hop_from is not None:
            self._go_on(int(hop_from), offset, place)
        else:
            self._begin(record, decision == b"prepare", offset, place)

    def all(self) -> list[Life]:
        return self._lives

    def _is_refused(self, place: str, *, is_hop: bool) -> bool:
        """Return whether the record was refused on reading, regardless of its request."""
        what, detail = self.ends.get(place, ("", ""))
        code = detail.split(":")[0]
        if what != DEAD or (is_hop and code not in NOBODYS):
            return False
        return code in AT_INGEST and not (code == "partition-bad" and "has partitions" in detail)

    def _go_on(self, hop_from: int, offset: int, place: str) -> None:
        life = self._of_entry.pop(hop_from, None)
        if life is None or self._said(life.members[-1]) not in GOES_ON:
            self.wrong.append(f"{place} succeeds {self.origin}{hop_from}, which has no successor")
            return
        self._of_entry[offset] = life
        life.members.append(place)
        if life.ended_by is not None:
            life.is_named_late = True
            if life.ident is not None and not life.is_purged:
                self._end_by_the_last(life, life.ident, hop_from)
        self._of_place[place] = life

    def _move(self, hop_from: int, offset: int, place: str, record: Incoming) -> None:
        """Move the named record, unless the move says that it came too late."""
        if self._said(place) == "missed":
            return
        life = self._of_entry.pop(hop_from, None)
        if life is None or life.ended_by is not None:
            self.wrong.append(f"{place} moves {hop_from}, which is not pending")
            return
        self._of_entry[offset] = self._of_place[place] = life
        life.members.append(place)
        life.moved.add(place)
        life.timed = record

    def _end_by_the_last(self, life: Life, ident: bytes, hop_from: int) -> None:
        """End the life by the last record or cancel with its id. A recall changes nothing here."""
        offset, how = self._last[ident]
        if self._of_id.get(ident) is life:
            del self._of_id[ident]
        elif offset > hop_from:
            life.ended_by = how

    def _begin(self, record: Incoming, is_half: bool, offset: int, place: str) -> None:
        ident = record.header("timer-id")
        if ident is not None:
            self._superseded(ident, "replaced", place)
        begun = self._of_entry[offset] = Life(record, ident, is_half, [place])
        self._lives.append(begun)
        self._of_place[place] = begun
        if ident is not None:
            self._of_id[ident] = begun

    def _superseded(self, ident: bytes, how: str, by: str) -> None:
        """End the life with this id by a cancel or a newer record."""
        life = self._of_id.pop(ident, None)
        self._last[ident] = int(by.rpartition("/")[2]), how
        if life is not None:
            life.ended_by, life.superseded_by = how, by
        if how == "cancelled":
            self._cancels.append((by, life))

    def _recalled(self, origin: str, record: Incoming, place: str) -> None:
        """Recall a life by its first or its current origin. A recall with another origin comes too
        late. The recall must know the key or the id. A late recall does not affect other records
        with the id."""
        life = self._of_place.get(origin)
        if life is not None and self.rules.proves_recalls and not _knows(record, life):
            life = None
        if life is not None and origin not in (life.members[0], life.members[-1]):
            life = None
        if life is not None and life.ended_by is not None:
            life = None
        if life is not None:
            life.ended_by, life.superseded_by = "cancelled", place
        if life is not None and life.ident is not None and self._said(place) != "missed":
            del self._of_id[life.ident]
        self._cancels.append((place, life))

    def _purged(self, purge: Purge, place: str) -> None:
        """End all matching pending lives. A life that another operation ended during its rewrite
        may name either operation."""
        self._check_said(place, "applied")
        for life in self._lives:
            if life.is_half or life.purged_by is not None or not self._is_meant(purge, life, place):
                continue
            if life.ended_by is None:
                life.purged_by = life.superseded_by = place
                life.ended_by = "cancelled"
                if life.ident is not None and self._of_id.get(life.ident) is life:
                    del self._of_id[life.ident]
            elif self._said(life.members[-1]) in GOES_ON:
                life.purged_by = place

    def _is_meant(self, purge: Purge, life: Life, place: str) -> bool:
        """Return whether a purge matches. If the due time is not judged here, the outcome
        decides."""
        due_ms = life.due_ms(self.rules)
        if due_ms is None:
            return self.ends.get(life.members[-1]) == ("cancelled", f"{PURGED}{place}")
        return purge.means(asked_topic(life.sent, self.rules), due_ms)

    def _decided(self, record: Incoming, what: bytes, offset: int, place: str) -> None:
        ident, hop_from = record.header("timer-id") or b"", record.header("timer-hop-from")
        life = self._of_id.get(ident)
        meant = None if hop_from is None else f"{self.origin}{int(hop_from)}"
        if life is None or not life.is_half or meant not in (None, life.members[0]):
            self._check_said(place, "missed")
            return
        life.is_half = False
        self._check_said(place, "applied")
        if what == b"commit":
            self._of_entry[offset] = life
            return
        life.ended_by = "rolled-back" if what == b"rollback" else "expired"
        del self._of_id[ident]

    def _check_said(self, place: str, expected: str) -> None:
        said = self._said(place)
        if said not in (expected, NOTHING):
            self.wrong.append(f"{place} says {said}, it should say {expected}")

    def judge(self) -> Iterator[str]:
        yield from self.wrong
        for life in self._lives:
            yield from self._wrong_life(life)
        for place, named in self._cancels:
            yield from self._wrong_cancel(place, named)

    def _wrong_cancel(self, place: str, life: Life | None) -> Iterator[str]:
        final = None if life is None else self._said(life.members[-1])
        said = self._said(place)
        has_ended_it = final == "cancelled" or (life is not None and life.is_named_late)
        may_say = {"applied"} if has_ended_it else {"missed"}
        if life is not None and self._was_requeued(life):
            may_say.add("missed")
        if said not in may_say | {NOTHING}:
            yield f"{place} says {said}, the record it names ended as {final}"

    def _wrong_life(self, life: Life) -> Iterator[str]:
        for member, following in pairwise(life.members):
            goes_on = {"requeued", "replaced"} if following in life.moved else GOES_ON
            if self._said(member) not in goes_on:
                yield f"{member} ended as {self.ends.get(member)}, but has a successor"
        final, detail = self.ends.get(life.members[-1], (NOTHING, ""))
        if final not in _possible(life):
            yield f"{life.members} ended as {final}, possible are {_possible(life)}"
        is_about_a_purge = detail.startswith(PURGED) or (life.is_purged and final == "cancelled")
        if is_about_a_purge and detail != f"{PURGED}{life.purged_by}":
            yield f"{life.members} ended as {detail!r}, it was purged by {life.purged_by}"

    def _said(self, place: str) -> str:
        return self.ends.get(place, (NOTHING, ""))[0]

    def _was_requeued(self, life: Life) -> bool:
        return any(self._said(member) == "requeued" for member in life.members)


def _knows(recall: Incoming, life: Life) -> bool:
    """Return whether a recall has the life's key, its id, or a signature. Signatures are not
    verified here."""
    knows_key = bool(recall.key) and recall.key == life.sent.key
    ident = recall.header("timer-id")
    knows_id = bool(ident) and ident == life.ident
    return knows_key or knows_id or recall.header("timer-hop-mac") is not None


def _possible(life: Life) -> set[str]:
    may_be = {life.ended_by} if life.ended_by else set()
    if life.purged_by is not None:
        may_be.add("cancelled")
    if life.is_half and life.ended_by is None:
        return {NOTHING}
    was_undone = life.ended_by in ("rolled-back", "expired")
    if life.is_half or life.is_named_late or was_undone:
        return may_be
    return may_be | {DELIVERED, DEAD}
