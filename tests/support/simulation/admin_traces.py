"""Made-up traces for the admin API."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from proxy.dead_letters.letter import Origin
from proxy.lineage.story import Step, Story


@dataclass
class MadeUpTraces:
    """Records written at 1,000, due at 6,000, and pending at 2,000. A trace waits for `go_on`.
    `begun` counts the traces."""

    refusal: Exception | None = None
    is_whole: bool = True
    asked: list[tuple[Origin, float, int]] = field(default_factory=list)
    begun: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    go_on: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.go_on.set()

    def trace(self, named: Origin, timeout_s: float, retries_within_ms: int) -> Story:
        self.asked.append((named, timeout_s, retries_within_ms))
        self.begun.release()
        self.go_on.wait()
        if self.refusal is not None:
            raise self.refusal
        steps = [
            Step(1_000, "ingested", named, "for orders", named, 6_000),
            Step(2_000, "pending", named, "", named, 6_000),
        ]
        unknown = [] if self.is_whole else ["What came after the last step."]
        return Story(named, "pending", named, None, steps, unknown, self.is_whole)
