"""What one transaction holds of one shard, before it is known what the broker takes of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from proxy.records.body import Delivery, Headers
from proxy.records.message import DeadLetter
from storage.store import Entry


class Outcome(NamedTuple):
    """How the ingress record at `offset` ended, other than by delivery (DESIGN 3).

    `next_offset`: of the record that goes on in its place, where that is known.
    """

    offset: int
    what: str
    due_ms: int | None
    ident: bytes | None
    detail: str = ""
    next_offset: int | None = None

    def to_json(self, origin: str) -> bytes:
        """The record's value; its key is the origin. `origin` is `topic/partition/`."""
        fields = {
            "origin": f"{origin}{self.offset}",
            "outcome": self.what,
            "due": self.due_ms,
            "id": None if self.ident is None else self.ident.decode("utf-8", "backslashreplace"),
            "detail": self.detail,
        }
        if self.next_offset is not None:
            fields["next_origin"] = f"{origin}{self.next_offset}"
        return json.dumps(fields, separators=(",", ":")).encode()


class Note(NamedTuple):
    """A record that is nobody's end: a check-back, or what the proxy writes to the ingress.

    `offset`: of the ingress record that it is about. partition -1 goes by the key.
    """

    offset: int
    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers


def told_at(origin: str, note: Note) -> tuple[str, int]:
    """The place of a note among `Lessons`: its refusal says nothing of the record it is about."""
    return f"{origin}{note.topic}", note.offset


@dataclass(slots=True)
class Ends:
    """Records that end otherwise than by an entry's firing, and what is said of them."""

    deliveries: list[Entry] = field(default_factory=list)
    dead_letters: list[DeadLetter] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)

    def __len__(self) -> int:
        said = len(self.outcomes) + len(self.notes)
        return len(self.deliveries) + len(self.dead_letters) + said


class Batch(NamedTuple):
    """One shard's part of a transaction. `origin` is `topic/partition/`."""

    origin: str
    deliveries: Sequence[Entry]
    dead_letters: Sequence[DeadLetter] = ()
    outcomes: Sequence[Outcome] = ()
    notes: Sequence[Note] = ()

    @property
    def hops(self) -> list[Hop]:
        """None: what has not been looked into is delivered."""
        return []


class Hop(NamedTuple):
    """A record that goes on through the ingress instead of being delivered: why, and when next."""

    delivery: Delivery
    what: str
    detail: str = ""
    not_before_ms: int | None = None
    attempt: int | None = None


class Opened(NamedTuple):
    """A batch that has been looked into: what cannot be delivered now has another end."""

    origin: str
    deliveries: Sequence[Delivery]
    dead_letters: Sequence[DeadLetter]
    outcomes: Sequence[Outcome]
    notes: Sequence[Note]
    hops: list[Hop]
