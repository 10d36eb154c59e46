"""The model: what may become of each record that shares its id with others, from log order alone.

A *life* is a record a producer wrote, with all that the proxy rewrote it as. Of the operations on
its id that follow it in the log, the first that can end it is the only one that may have done so;
whether it did, or the record had been delivered before, every outcome has to say alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

AT_INGEST = {
    "header-unreadable",
    "header-unknown",
    "header-unsupported",
    "target-missing",
    "target-illegal",
    "target-refused",
    "time-unreadable",
    "level-unknown",
    "delay-too-long",
    "id-bad",
    "retry-bad",
    "transaction-bad",
    "hop-bad",
}
GOES_ON = {"rolled", "requeued"}
TAKEN_BACK = {"cancelled", "replaced"}
"""In mid-hop the newest of several operations says which of the two it was."""
DELIVERED, DEAD = "delivered", "dead-lettered"


class Asking(Protocol):
    """An ingress record: its headers by name."""

    def header(self, name: str) -> bytes | None: ...


@dataclass(slots=True)
class Life:
    """One record of a producer; `members` are the origins under which it went on."""

    ident: bytes | None
    is_half: bool
    members: list[str] = field(default_factory=list)
    ended_by: str | None = None


@dataclass(slots=True)
class Lives:
    """Replays one partition's log; `ends` says how each origin ended (with its detail)."""

    origin: str
    ends: Mapping[str, tuple[str, str]]
    wrong: list[str] = field(default_factory=list)
    _of_entry: dict[int, Life] = field(default_factory=dict)
    _of_id: dict[bytes, Life] = field(default_factory=dict)
    _cancels: list[tuple[str, Life | None]] = field(default_factory=list)

    def replay(self, offset: int, record: Asking) -> None:
        """Take the next record of the log."""
        place = f"{self.origin}{offset}"
        what, detail = self.ends.get(place, ("", ""))
        hop_from = record.header("timer-hop-from")
        if what == DEAD and detail.split(":")[0] in AT_INGEST and hop_from is None:
            return
        cancel, decision = record.header("timer-cancel"), record.header("timer-transaction")
        if cancel is not None:
            self._superseded(cancel, "cancelled", place)
        elif decision not in (None, b"prepare"):
            self._decided(record, decision or b"", offset, place)
        elif hop_from is not None:
            self._of_entry[offset] = self._of_entry[int(hop_from)]
            self._of_entry[offset].members.append(place)
        else:
            self._begin(record.header("timer-id"), decision == b"prepare", offset, place)

    def _begin(self, ident: bytes | None, is_half: bool, offset: int, place: str) -> None:
        if ident is not None:
            self._superseded(ident, "replaced", place)
        begun = self._of_entry[offset] = Life(ident, is_half, [place])
        if ident is not None:
            self._of_id[ident] = begun

    def _superseded(self, ident: bytes, how: str, by: str) -> None:
        """A cancel or a newer record: it ends the life, unless that had fired before."""
        life = self._of_id.pop(ident, None)
        if life is not None:
            life.ended_by = how
        if how == "cancelled":
            self._cancels.append((by, life))

    def _decided(self, record: Asking, what: bytes, offset: int, place: str) -> None:
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
        said = self.ends.get(place, ("nothing", ""))[0]
        if said != expected:
            self.wrong.append(f"{place} says {said}, it should say {expected}")

    def judge(self) -> Iterator[str]:
        """What contradicts the log; called after its last record."""
        yield from self.wrong
        for life in {id(life): life for life in self._of_entry.values()}.values():
            yield from self._wrong_life(life)
        for place, named in self._cancels:
            yield from self._wrong_cancel(place, named)

    def _wrong_cancel(self, place: str, life: Life | None) -> Iterator[str]:
        final = None if life is None else self._final(life)
        said = self.ends.get(place, ("nothing", ""))[0]
        is_in_hop = life is not None and len(life.members) > 1
        is_ended = final == "cancelled" or (final in TAKEN_BACK and is_in_hop)
        may_say = {"applied"} if is_ended else {"missed"}
        if life is not None and self._was_requeued(life):
            may_say.add("missed")
        if said not in may_say:
            yield f"{place} says {said}, the record it names ended as {final}"

    def _wrong_life(self, life: Life) -> Iterator[str]:
        for member in life.members[:-1]:
            if self.ends.get(member, ("nothing", ""))[0] not in GOES_ON:
                yield f"{member} ended as {self.ends.get(member)}, yet goes on"
        final = self._final(life)
        may_be = {life.ended_by} if life.ended_by else set()
        if life.ended_by not in ("rolled-back", "expired") and not life.is_half:
            may_be |= {DELIVERED, DEAD}
        if life.ended_by in TAKEN_BACK and len(life.members) > 1:
            may_be |= TAKEN_BACK
        if life.is_half and life.ended_by is None:
            may_be = {"nothing"}
        if final not in may_be:
            yield f"{life.members} ended as {final}, possible are {may_be}"

    def _final(self, life: Life) -> str:
        return self.ends.get(life.members[-1], ("nothing", ""))[0]

    def _was_requeued(self, life: Life) -> bool:
        return any(self.ends.get(member, ("", ""))[0] == "requeued" for member in life.members)
