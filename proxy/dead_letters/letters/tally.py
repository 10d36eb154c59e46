"""What a replay does or would do, counted: where letters go, and why others stay."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from proxy.dead_letters.letters.letter import Place
from proxy.dead_letters.letters.prospects import FINE, Goes, Prospect

TOLD_APART: Final = 1_000
OTHERS: Final = "other topics"


@dataclass(slots=True)
class Going:
    """Letters for one target, and the times between which they are due."""

    first_due_ms: int
    last_due_ms: int
    letters: int = 0

    def note(self, due_ms: int) -> None:
        self.letters += 1
        self.first_due_ms = min(self.first_due_ms, due_ms)
        self.last_due_ms = max(self.last_due_ms, due_ms)


@dataclass(slots=True)
class Staying:
    """Letters that stay for one kind of reason; place and detail are the first one's."""

    place: Place
    detail: str
    letters: int = 0


@dataclass(slots=True)
class Tally:
    """By target and by kind; TOLD_APART targets at most are told apart."""

    going: dict[str, Going] = field(default_factory=dict)
    staying: dict[str, Staying] = field(default_factory=dict)

    def note(self, prospect: Prospect) -> None:
        """One letter more."""
        if isinstance(prospect, Goes):
            many = len(self.going) >= TOLD_APART and prospect.target not in self.going
            name, due_ms = OTHERS if many else prospect.target, prospect.due_ms
            self.going.setdefault(name, Going(due_ms, due_ms)).note(due_ms)
        else:
            first = Staying(prospect.letter.place, prospect.detail)
            self.staying.setdefault(prospect.kind, first).letters += 1

    @property
    def goes(self) -> int:
        """How many letters are replayed."""
        return sum(one.letters for one in self.going.values())

    @property
    def stays(self) -> int:
        """How many are not."""
        return sum(one.letters for one in self.staying.values())

    @property
    def needs_care(self) -> bool:
        """Whether a letter stays about which somebody has to do something."""
        return not self.staying.keys() <= FINE
