"""Made-up dead letters for the admin API."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from proxy.admin.models import LetterTopic
from proxy.admin.replay_jobs import WantedReplay
from proxy.admin.topic_readers import Marks
from proxy.dead_letters.letter import Letter, LetterPage, Place, summary_of
from proxy.dead_letters.replay import OnDecision
from proxy.dead_letters.replay_plan import Mark, NotReplayed, Replayable, Selection
from tests.support.dead_letters import a_letter

GROUP = "billing"
MARK = Mark(7, "timer.ingress/0/9")


@dataclass
class MadeUpLetters:
    """Two letters in each topic. The first was replayed. A replay waits for `go_on`."""

    refusal: Exception | None = None
    pages: list[tuple[str | None, Selection, dict[int, int], int]] = field(default_factory=list)
    replays: list[WantedReplay] = field(default_factory=list)
    go_on: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.go_on.set()

    def topics(self) -> Sequence[LetterTopic]:
        return [
            LetterTopic(topic="timer.dead-letters", group=None, offsets=2),
            LetterTopic(topic=f"dlq.{GROUP}", group=GROUP, offsets=None),
        ]

    def page(
        self, group: str | None, selection: Selection, ends: dict[int, int], limit: int
    ) -> tuple[LetterPage, Marks]:
        if self.refusal is not None:
            raise self.refusal
        self.pages.append((group, selection, ends, limit))
        shown = [summary_of(a_letter(offset)) for offset in (1, 0)][:limit]
        more = {0: 1, 1: 0} if limit < 2 else None
        return LetterPage(shown, more), {Place(0, 0): MARK}

    def letter(self, group: str | None, place: Place) -> tuple[Letter, Mark, bytes]:
        letter = a_letter(place.offset, partition=place.partition, value=None)
        return letter, MARK, b"from the ingress"

    def replay(
        self,
        wanted: WantedReplay,
        on_decision: OnDecision,
        on_missing: Callable[[Place], None],
        is_stopping: Callable[[], bool],
    ) -> None:
        self.replays.append(wanted)
        self.go_on.wait()
        if self.refusal is not None:
            raise self.refusal
        on_decision(Replayable(a_letter(0), "orders", 5, 0, b"v", []), "timer.ingress/0/9")
        on_decision(NotReplayed(a_letter(1), "target-unknown", "there is none"), None)
        for place in wanted.places or ():
            if place.offset:
                on_missing(place)
