"""What a replay does or would do, counted: by target, and by reason why a letter is left."""

from dataclasses import dataclass, field
from typing import Final

from proxy.dead_letters.letters.letter import Place
from proxy.dead_letters.letters.replay_planner import NO_ACTION_NEEDED, Replayable, ReplayDecision

TOLD_APART: Final = 1_000
OTHERS: Final = "other topics"


@dataclass(slots=True)
class TargetCount:
    """Letters for one target, and the times between which they are due."""

    first_due_ms: int
    last_due_ms: int
    letters: int = 0

    def note(self, due_ms: int) -> None:
        self.letters += 1
        self.first_due_ms = min(self.first_due_ms, due_ms)
        self.last_due_ms = max(self.last_due_ms, due_ms)


@dataclass(slots=True)
class ReasonCount:
    """Letters that are not replayed for one reason; place and detail are the first one's."""

    place: Place
    detail: str
    letters: int = 0


@dataclass(slots=True)
class ReplayCounts:
    """Letters by target and by reason; TOLD_APART targets at most are told apart."""

    by_target: dict[str, TargetCount] = field(default_factory=dict)
    by_reason: dict[str, ReasonCount] = field(default_factory=dict)

    def note(self, decision: ReplayDecision) -> None:
        """One letter more."""
        if isinstance(decision, Replayable):
            many = len(self.by_target) >= TOLD_APART and decision.target not in self.by_target
            name, due_ms = OTHERS if many else decision.target, decision.due_ms
            self.by_target.setdefault(name, TargetCount(due_ms, due_ms)).note(due_ms)
        else:
            first = ReasonCount(decision.letter.place, decision.detail)
            self.by_reason.setdefault(decision.kind, first).letters += 1

    @property
    def replayable(self) -> int:
        """How many letters can be replayed, or have been."""
        return sum(one.letters for one in self.by_target.values())

    @property
    def kept(self) -> int:
        """How many are left where they are."""
        return sum(one.letters for one in self.by_reason.values())

    @property
    def needs_action(self) -> bool:
        """Whether a letter is left that somebody has to do something about."""
        return not self.by_reason.keys() <= NO_ACTION_NEEDED
